package natsd

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/nats-io/nats-server/v2/server"
)

// keepFolder is the folder below Config.Dir that holds links to the files of all streams while
// a server starts.
const keepFolder = "streams-while-starting"

// keepStreams links the files of all streams, so that the start of a server cannot lose them.
//
// A NATS server that cannot read a file of a stream when it starts, because the disk returns
// an error, removes the whole directory of that stream and continues without it:
//
//	read .../S/msgs/7.blk: input/output error   the disk, or the way to it, for a moment
//	Error recreating stream "S"                 and S is gone, all that was acknowledged with it
//
// Reading all files before would find the error too, but takes as long as the logs are. Links
// take no room: they are further names of the same files, which the server does not know. If
// the process is killed while it starts, the next one finds the links and begins with
// restoreStreams.
//
// On a file system without links nothing is kept; that is logged, and the server starts.
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

// linkAll links all files of the directory from in the directory to. The file that describes
// the stream comes last: where it is, the links are complete. restoreStreams relies on it.
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

// restoreStreams puts back the files of each stream whose directory was removed while a server
// started, and removes all other links. It returns the names of the streams it put back.
func (s *Server) restoreStreams() (lost []string, err error) {
	keep := filepath.Join(s.cfg.Dir, keepFolder)
	kept, err := filepath.Glob(filepath.Join(keep, "*", "*", server.JetStreamMetaFile))
	if err != nil {
		return nil, err
	}
	for _, meta := range kept {
		from := filepath.Dir(meta)
		to := filepath.Join(s.cfg.Dir, server.JetStreamStoreDir, filepath.Base(filepath.Dir(from)), "streams", filepath.Base(from))
		// Its description is still there, so the server has kept the stream.
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

// moveStream moves the directory from to to, where the server has removed one.
func moveStream(from, to string) (err error) {
	// The server also removes the folder of all streams if it is empty, a moment later: then
	// the folder that was just made is gone before the rename, and both are done again.
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
