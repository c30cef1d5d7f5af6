package guard

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"
)

const (
	// consumersMax bounds the consumers of readers that one Guard has made, and
	// consumersOfStreamMax those of one stream. Each takes some 30 KB of the server.
	consumersMax         = 1024
	consumersOfStreamMax = 64
	// pullsMax bounds the requests that wait at one consumer. Tails keep two there.
	pullsMax = 4
	// countPause is how long a Guard that has no room believes so.
	countPause = time.Second

	codeNoConsumer = 10014
	codeNoStream   = 10059
)

// consumers are those that a Guard has made, until it hears that they are gone. It does not hear
// of those that end by being idle, or by another Guard, so it asks when there is no room.
type consumers struct {
	mu       sync.Mutex                 // held while the server is asked, so that one request asks for all
	ofStream map[string]map[string]bool // whether each is made, and not only asked for
	count    int
	counted  time.Time // when the server was asked last
}

// admit makes room for a consumer. The reason is not empty if there is none.
func (g *Guard) admit(ctx context.Context, stream, name string) (reason string) {
	m := &g.made
	m.mu.Lock()
	defer m.mu.Unlock()
	full := func() string {
		_, there := m.ofStream[stream][name]
		switch {
		case there:
			return ""
		case len(m.ofStream[stream]) >= consumersOfStreamMax:
			return fmt.Sprintf("readers have %d consumers of this stream by one process of Millrace, and may not have more", consumersOfStreamMax)
		case m.count >= consumersMax:
			return fmt.Sprintf("readers have %d consumers by one process of Millrace, and may not have more", consumersMax)
		}
		return ""
	}
	if full() != "" && time.Since(m.counted) > countPause {
		for of, names := range m.ofStream {
			if of != stream && m.count < consumersMax {
				continue
			}
			for other, made := range names {
				if made && g.isGone(ctx, of+"."+other) {
					m.forgetLocked(of, other)
				}
			}
		}
		m.counted = time.Now()
	}
	if reason = full(); reason != "" {
		return reason
	}
	m.putLocked(stream, name, false)
	return ""
}

// settle says whether a consumer for which admit has made room may be there. Two requests may
// have asked for one of the same name, and the other have been refused.
func (m *consumers) settle(stream, name string, made bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if made {
		m.putLocked(stream, name, true)
	} else if !m.ofStream[stream][name] {
		m.forgetLocked(stream, name)
	}
}

func (m *consumers) putLocked(stream, name string, made bool) {
	of := m.ofStream[stream]
	if of == nil {
		of = map[string]bool{}
		m.ofStream[stream] = of
	}
	if _, there := of[name]; !there {
		m.count++
	}
	of[name] = of[name] || made
}

// forget makes room again after a consumer was deleted.
func (m *consumers) forget(stream, name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.forgetLocked(stream, name)
}

func (m *consumers) forgetLocked(stream, name string) {
	if _, there := m.ofStream[stream][name]; !there {
		return
	}
	m.count--
	if delete(m.ofStream[stream], name); len(m.ofStream[stream]) == 0 {
		delete(m.ofStream, stream)
	}
}

// errorCode returns the err_code of JetStream's answer or of refuse, 0 for a success.
func errorCode(answer []byte) int {
	var failed struct {
		Error struct {
			Code int `json:"err_code"`
		} `json:"error"`
	}
	if json.Unmarshal(answer, &failed) != nil {
		return codeRefused
	}
	return failed.Error.Code
}

// isGone asks whether a consumer is certainly not there.
func (g *Guard) isGone(ctx context.Context, where string) bool {
	m, err := g.nc.RequestWithContext(ctx, apiInfo+where, nil)
	if err != nil {
		return false
	}
	code := errorCode(m.Data)
	return code == codeNoConsumer || code == codeNoStream
}
