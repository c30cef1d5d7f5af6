package s3

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"net/http"
	"path"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"
)

// Errors beside fs.ErrNotExist, for an object that is not there, and fs.ErrExist, for one
// that is there already.
var (
	// ErrChanged says that an object is not what was seen: somebody has replaced it.
	ErrChanged = errors.New("it was changed meanwhile")
	// ErrSlow says that a request took too long. What it wrote may be there or not.
	ErrSlow = errors.New("no answer in time")
)

// Bucket is a bucket, or what lies below a prefix of it.
type Bucket struct {
	client         *minio.Client
	bucket, prefix string
	timeout        time.Duration
}

// Object is one object in a list.
type Object struct {
	Name string
	Size int64
	// Modified is when it was made or replaced, on the server's clock.
	Modified time.Time
}

// String returns the bucket and prefix as a URL.
func (b *Bucket) String() string { return "s3://" + b.bucket + "/" + b.prefix }

// bytesPerSecond is what a connection must carry at least.
const bytesPerSecond = 128 << 10

// request is the scope of one request to the server.
type request struct {
	b      *Bucket
	parent context.Context //nolint:containedctx // a request is a scope
	cancel context.CancelCauseFunc
	timer  *time.Timer
}

// request begins one that carries so many bytes.
func (b *Bucket) request(parent context.Context, size int64) (context.Context, *request) {
	ctx, cancel := context.WithCancelCause(parent)
	r := &request{b: b, parent: parent, cancel: cancel}
	r.timer = time.AfterFunc(b.limit(size), func() { cancel(ErrSlow) })
	return ctx, r
}

// limit is how long a request may take.
func (b *Bucket) limit(size int64) time.Duration {
	return b.timeout + time.Duration(size)*time.Second/bytesPerSecond
}

// again gives the request its time anew, for so many bytes.
func (r *request) again(size int64) { r.timer.Reset(r.b.limit(size)) }

// end ends the request, and makes what it ended with the error that the caller is told.
func (r *request) end(ctx context.Context, err error) error {
	r.timer.Stop()
	slow := errors.Is(context.Cause(ctx), ErrSlow) && r.parent.Err() == nil
	r.cancel(nil)
	switch answer, _ := errors.AsType[minio.ErrorResponse](err); {
	case err == nil:
		return nil
	case slow: // not the error of a context: the caller's has not ended
		return fmt.Errorf("%s: %w", r.b, ErrSlow)
	case answer.Code == minio.NoSuchKey:
		return fmt.Errorf("%s: %w: %w", r.b, fs.ErrNotExist, err)
	case answer.StatusCode == http.StatusPreconditionFailed, answer.Code == minio.PreconditionFailed:
		return fmt.Errorf("%s: %w: %w", r.b, fs.ErrExist, err)
	}
	return fmt.Errorf("%s: %w", r.b, err)
}

// Get reads an object.
func (b *Bucket) Get(ctx context.Context, name string) ([]byte, error) {
	data, _, err := b.Look(ctx, name)
	return data, err
}

// Look reads an object, and its ETag, in one request: the object may be replaced at any moment, and an answer
// to HEAD does not tell what is missing, the object or the bucket.
func (b *Bucket) Look(ctx context.Context, name string) (data []byte, etag string, err error) {
	ctx, r := b.request(ctx, 0)
	defer func() { err = r.end(ctx, err) }()
	body, info, _, err := minio.Core{Client: b.client}.GetObject(ctx, b.bucket, b.prefix+name, minio.GetObjectOptions{})
	if err != nil {
		return nil, "", err
	}
	defer func() { err = errors.Join(err, body.Close()) }()
	r.again(info.Size)
	data, err = io.ReadAll(body)
	return data, info.ETag, err
}

// Put makes or replaces an object.
func (b *Bucket) Put(ctx context.Context, name string, data []byte) error {
	return b.put(ctx, name, data, &minio.PutObjectOptions{})
}

// PutExclusive makes an object. The error is fs.ErrExist if there is one already.
func (b *Bucket) PutExclusive(ctx context.Context, name string, data []byte) error {
	var opts minio.PutObjectOptions
	opts.SetMatchETagExcept("*")
	return b.put(ctx, name, data, &opts)
}

// PutMatching replaces an object that has this ETag. The error is ErrChanged if it has
// another one, or is gone.
func (b *Bucket) PutMatching(ctx context.Context, name string, data []byte, etag string) error {
	var opts minio.PutObjectOptions
	opts.SetMatchETag(etag)
	err := b.put(ctx, name, data, &opts)
	if errors.Is(err, fs.ErrExist) || errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s%s: %w", b, name, ErrChanged)
	}
	return err
}

func (b *Bucket) put(ctx context.Context, name string, data []byte, opts *minio.PutObjectOptions) error {
	// One request, because a condition is of one request: of an upload in parts it would
	// be checked when the last part has been sent, if the server checks it at all.
	opts.DisableMultipart, opts.ContentType = true, contentType(name)
	ctx, r := b.request(ctx, int64(len(data)))
	_, err := b.client.PutObject(ctx, b.bucket, b.prefix+name, bytes.NewReader(data), int64(len(data)), *opts)
	return r.end(ctx, err)
}

func contentType(name string) string {
	switch path.Ext(name) {
	case ".json":
		return "application/json"
	case ".parquet":
		return "application/vnd.apache.parquet"
	}
	return "application/octet-stream"
}

// Prove finds out whether the server compares before it writes. It writes data, which the
// object has, once more in both ways that must be refused.
func (b *Bucket) Prove(ctx context.Context, name string, data []byte) error {
	if err := b.PutExclusive(ctx, name, data); !errors.Is(err, fs.ErrExist) {
		return b.unproven(err, "makes an object that is there although it was asked not to (If-None-Match: *)")
	}
	if err := b.PutMatching(ctx, name, data, strings.Repeat("0", 32)); !errors.Is(err, ErrChanged) {
		return b.unproven(err, "replaces an object although it was asked to only if it is another one (If-Match)")
	}
	return nil
}

func (b *Bucket) unproven(err error, what string) error {
	if err != nil {
		return err // the server could not be asked
	}
	return fmt.Errorf("%s: the server %s: two processes could overwrite each other's work", b, what)
}

// List yields the objects whose names begin with prefix, which is empty or ends with a
// slash, and come after the name after, in the order of their names. It asks for them in
// pages of 1000.
func (b *Bucket) List(ctx context.Context, prefix, after string) iter.Seq2[Object, error] {
	return func(yield func(Object, error) bool) {
		opts := minio.ListObjectsOptions{Prefix: b.prefix + prefix, Recursive: true}
		if after != "" {
			opts.StartAfter = b.prefix + after
		}
		for o, err := range b.list(ctx, &opts) {
			// List promises names behind after, whatever a server makes of StartAfter.
			if (err != nil || o.Name > after) && !yield(o, err) {
				return
			}
		}
	}
}

// Names returns what lies directly below a prefix, as it follows the prefix: objects, and
// folders, which end with a slash.
func (b *Bucket) Names(ctx context.Context, prefix string) (names []string, err error) {
	for o, err := range b.list(ctx, &minio.ListObjectsOptions{Prefix: b.prefix + prefix}) {
		if err != nil {
			return nil, err
		}
		names = append(names, strings.TrimPrefix(o.Name, prefix))
	}
	return names, nil
}

func (b *Bucket) list(ctx context.Context, opts *minio.ListObjectsOptions) iter.Seq2[Object, error] {
	return func(yield func(Object, error) bool) {
		ctx, r := b.request(ctx, 0)
		defer func() { _ = r.end(ctx, nil) }()
		for o := range b.client.ListObjectsIter(ctx, b.bucket, *opts) {
			if o.Err != nil {
				yield(Object{}, r.end(ctx, o.Err))
				return
			}
			// Whoever reads the list may take long over one object: that is not the server's time.
			r.timer.Stop()
			if !yield(Object{Name: strings.TrimPrefix(o.Key, b.prefix), Size: o.Size, Modified: o.LastModified}, nil) {
				return
			}
			r.again(0)
		}
		// The client ends the list without a word where the context has ended: it is no whole one.
		if ctx.Err() != nil {
			yield(Object{}, r.end(ctx, context.Cause(ctx)))
		}
	}
}

// Delete removes objects, many in one request. One that is not there is no error.
func (b *Bucket) Delete(ctx context.Context, names ...string) error {
	ctx, r := b.request(ctx, 0)
	if len(names) == 1 {
		err := r.end(ctx, b.client.RemoveObject(ctx, b.bucket, b.prefix+names[0], minio.RemoveObjectOptions{}))
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	}
	objects := make(chan minio.ObjectInfo)
	go func() {
		defer close(objects)
		for _, name := range names {
			select {
			case objects <- minio.ObjectInfo{Key: b.prefix + name}:
			case <-ctx.Done():
				return
			}
		}
	}()
	// The loop ends when all have been answered: the client closes its channel then.
	var first error
	for failed := range b.client.RemoveObjectsWithResult(ctx, b.bucket, objects, minio.RemoveObjectsOptions{}) {
		r.again(0)
		answer, _ := errors.AsType[minio.ErrorResponse](failed.Err)
		if failed.Err != nil && answer.Code != minio.NoSuchKey && first == nil {
			first = fmt.Errorf("%s: %w", failed.ObjectName, failed.Err)
		}
	}
	return r.end(ctx, cmp.Or(first, ctx.Err())) // a cut-off client closes it without a word
}
