// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"cmp"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// pieces is how many pieces of a watch may wait to be delivered; while that many wait, the server is not
// read from.
const pieces = 1024

// DelayWatches makes watches of the resources, or all if none is named, deliver later events this much
// later; 0 ends that. The order stays.
func (p *Proxy) DelayWatches(d time.Duration, resources ...string) {
	p.mu.Lock()
	p.lag, p.lagging = d, resources
	p.mu.Unlock()
}

// lagOf returns the delay of watches of a resource. Call it with mu held.
func (p *Proxy) lagOf(resource string) time.Duration {
	if len(p.lagging) > 0 && !slices.Contains(p.lagging, resource) {
		return 0
	}
	return p.lag
}

// CutWatches ends all running watches as a broken connection does, except those of the resources to
// spare.
func (p *Proxy) CutWatches(spare ...string) {
	p.mu.Lock()
	running := make([]*stream, 0, len(p.watches))
	for s := range p.watches {
		if !slices.Contains(spare, s.resource) {
			running = append(running, s)
		}
	}
	p.counts[WatchCut] += len(running)
	p.mu.Unlock()
	for _, s := range running {
		s.cut(io.ErrUnexpectedEOF)
	}
}

// Watch is the state of a running watch of the client.
type Watch struct {
	Resource string
	Since    time.Time
	// Delivered is when the client last read from it; zero: never.
	Delivered time.Time
	// Waiting is how many pieces the client has not read yet, delayed or not.
	Waiting int
}

// Watches returns the running watches, the oldest first.
func (p *Proxy) Watches() []Watch {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := make([]Watch, 0, len(p.watches))
	for s := range p.watches {
		out = append(out, Watch{Resource: s.resource, Since: s.since, Delivered: s.delivered, Waiting: len(s.queue)})
	}
	slices.SortFunc(out, func(a, b Watch) int {
		return cmp.Or(a.Since.Compare(b.Since), strings.Compare(a.Resource, b.Resource))
	})
	return out
}

// wrapWatch puts a stream that can be delayed and cut before a watch's answer.
func (p *Proxy) wrapWatch(resp *http.Response) error {
	q := classify(resp.Request)
	if resp.StatusCode != http.StatusOK || q.traffic != Watches {
		return nil
	}
	s := &stream{
		proxy: p, resource: q.resource, since: p.clock.Now(), from: resp.Body, ended: make(chan struct{}), queue: make(chan piece, pieces),
	}
	p.mu.Lock()
	p.watches[s] = struct{}{}
	p.mu.Unlock()
	p.pending.Go(s.pump)
	resp.Body = s
	return nil
}

// piece is a part of a watch with the time at which the client may have it.
type piece struct {
	data []byte
	at   time.Time
	err  error // of the server's stream, after data
}

// stream is one running watch.
type stream struct {
	proxy    *Proxy
	resource string
	since    time.Time
	from     io.ReadCloser
	queue    chan piece
	rest     []byte // of the last piece; the reader's alone
	last     error  // the reader's alone

	delivered time.Time // guarded by proxy.mu

	once  sync.Once
	ended chan struct{}
	why   error // set before ended is closed
}

// pump reads the server's stream.
func (s *stream) pump() {
	for {
		buf := make([]byte, 32<<10)
		n, err := s.from.Read(buf)
		s.proxy.mu.Lock()
		lag := s.proxy.lagOf(s.resource)
		if lag > 0 && n > 0 {
			s.proxy.counts[WatchDelay]++
		}
		s.proxy.mu.Unlock()
		select {
		case s.queue <- piece{data: buf[:n], at: s.proxy.clock.Now().Add(lag), err: err}:
		case <-s.ended:
			return
		}
		if err != nil {
			return
		}
	}
}

// Read implements io.Reader.
func (s *stream) Read(b []byte) (int, error) {
	for len(s.rest) == 0 {
		if s.last != nil {
			return 0, s.last
		}
		select {
		case <-s.ended:
			return 0, s.why
		case next := <-s.queue:
			if err := s.await(next.at); err != nil {
				return 0, err
			}
			s.rest, s.last = next.data, next.err
			s.proxy.mu.Lock()
			s.delivered = s.proxy.clock.Now()
			s.proxy.mu.Unlock()
		}
	}
	n := copy(b, s.rest)
	s.rest = s.rest[n:]
	return n, nil
}

func (s *stream) await(at time.Time) error {
	wait := at.Sub(s.proxy.clock.Now())
	if wait <= 0 {
		return nil
	}
	t := s.proxy.clock.NewTimer(wait)
	defer t.Stop()
	select {
	case <-s.ended:
		return s.why
	case <-t.C():
		return nil
	}
}

// cut ends the stream for its reader and for the server.
func (s *stream) cut(why error) {
	s.once.Do(func() {
		s.why = why
		close(s.ended)
		s.proxy.mu.Lock()
		delete(s.proxy.watches, s)
		s.proxy.mu.Unlock()
		_ = s.from.Close() // wakes pump
	})
}

// Close implements io.Closer.
func (s *stream) Close() error {
	s.cut(io.EOF)
	return nil
}
