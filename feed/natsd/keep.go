package natsd

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/nats-io/nats-server/v2/server"
)

// keepFolder is where links to the files of all streams lie, below Config.Dir, while a
// server starts.
const keepFolder = "streams-while-starting"

// keepStreams links the files of all streams, so that they outlive the start of a server.
//
// A server that cannot read a file of a stream when it starts, because the disk answers with an
// error, removes the whole directory of that stream and goes on without it:
//
//	read .../S/msgs/7.blk: input/output error   the disk, or the way to it, for a moment
//	Error recreating stream "S"                 and S is gone, all that was acknowledged with it
//
// Reading everything before would tell, and would take as long as the logs are. Links take
// no room: they are other names of the same files, of which the server knows nothing. Where a
// process is killed while it starts, the next one finds them and begins with restoreStreams.
//
// A file system without links has none of this; that is said, and the server starts.
func (s *Server) keepStreams() error {
	if _, err := s.restoreStreams(); err != nil {
		return err
	}
	store := filepath.Join(s.cfg.Dir, server.JetStreamStoreDir)
	streams, err := filepath.Glob(filepath.Join(store, "*", "streams", "*"))
	if err != nil {
		return err
	}
	for _, dir := range streams {
		account := filepath.Base(filepath.Dir(filepath.Dir(dir)))
		err := linkAll(dir, filepath.Join(s.cfg.Dir, keepFolder, account, filepath.Base(dir)))
		if errors.Is(err, errors.ErrUnsupported) || errors.Is(err, fs.ErrPermission) {
			s.cfg.Log.Warn("the file system has no links: a stream that the disk cannot read at a start would be lost", "error", err)
			return os.RemoveAll(filepath.Join(s.cfg.Dir, keepFolder))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// linkAll makes a directory with the same files. The description of the stream comes last:
// with it the links are complete.
func linkAll(from, to string) error {
	last := filepath.Join(from, server.JetStreamMetaFile)
	err := filepath.WalkDir(from, func(name string, e fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) || name == last {
			return nil
		}
		if err != nil {
			return err
		}
		target := filepath.Join(to, name[len(from):])
		if e.IsDir() {
			return os.MkdirAll(target, 0o700)
		}
		return os.Link(name, target)
	})
	if err == nil {
		err = os.Link(last, filepath.Join(to, server.JetStreamMetaFile))
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil // not a stream; the server has no use for it either
	}
	return err
}

// restoreStreams puts the files of streams back whose directory has gone while a server
// started, and lets go of the others. It returns the names of the streams.
func (s *Server) restoreStreams() (lost []string, err error) {
	keep := filepath.Join(s.cfg.Dir, keepFolder)
	kept, err := filepath.Glob(filepath.Join(keep, "*", "*", server.JetStreamMetaFile))
	if err != nil {
		return nil, err
	}
	for _, meta := range kept {
		from := filepath.Dir(meta)
		to := filepath.Join(s.cfg.Dir, server.JetStreamStoreDir, filepath.Base(filepath.Dir(from)), "streams", filepath.Base(from))
		if _, err := os.Stat(filepath.Join(to, server.JetStreamMetaFile)); !errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err := moveStream(from, to); err != nil {
			return lost, fmt.Errorf("put the files of stream %s back, which are in %s: %w", filepath.Base(to), from, err)
		}
		lost = append(lost, filepath.Base(to))
	}
	return lost, os.RemoveAll(keep)
}

// moveStream moves a directory to where one was removed.
func moveStream(from, to string) (err error) {
	// The server removes the folder of streams, if it is empty, a moment later.
	const triesMax = 10
	for range triesMax {
		if err = errors.Join(os.RemoveAll(to), os.MkdirAll(filepath.Dir(to), 0o700)); err != nil {
			return err
		}
		if err = os.Rename(from, to); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return err
}
