package bucket

import (
	"context"
	"errors"

	"github.com/nats-io/nats.go/jetstream"
)

// Watch calls changed with the values of the keys of kv that match a pattern, by key: once at
// first and then after every change, until ctx ends. Changes that come close together may be
// seen as one. changed must not keep the map.
//
// decode returns the value of an entry, or false where it cannot be read and the former value
// counts. An error of decode ends the watch.
func Watch[T any](ctx context.Context, kv jetstream.KeyValue, pattern string, decode func(jetstream.KeyValueEntry) (T, bool, error), changed func(map[string]T)) error {
	w, err := kv.Watch(ctx, pattern)
	if err != nil {
		return err
	}
	defer func() {
		_ = w.Stop() // the watcher ends with its connection anyway
		// What still waits to be told is taken: whoever tells it would wait for ever.
		go func() {
			for range w.Updates() { // it is thrown away
			}
		}()
	}()
	all := map[string]T{}
	began := false
	for {
		select {
		case <-ctx.Done():
			return nil
		case entry, ok := <-w.Updates():
			switch {
			case !ok:
				return errors.New("the watch was closed")
			case entry == nil: // all that there was at first has come
				began = true
			case entry.Operation() != jetstream.KeyValuePut:
				delete(all, entry.Key())
			default:
				value, readable, err := decode(entry)
				if err != nil {
					return err
				}
				if readable {
					all[entry.Key()] = value
				}
			}
			// Only when no more are waiting: at the start, and when many keys are written at
			// once, one call in place of one for each. Also behind an entry that cannot be
			// read, because those before it have not been told of.
			if began && len(w.Updates()) == 0 {
				changed(all)
			}
		}
	}
}
