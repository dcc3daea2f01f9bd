// SPDX-License-Identifier: Apache-2.0

package webui

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

const (
	// heartbeat is how often something is sent though nothing changed: proxies close connections
	// on which nothing happens.
	heartbeat = 15 * time.Second
	// reviewEvery is how often a viewer's token and rights are asked for again. The answer may be one
	// that is kept for answerTTL.
	reviewEvery = 30 * time.Second
	// maxUnsaid is after how many reviews in turn that nobody answered a stream ends: an API server
	// that restarts ends none.
	maxUnsaid = 4
	// maxStreams bounds the streams, and maxStreamsPerCaller those of one caller: one for each
	// page that is open.
	maxStreams          = 256
	maxStreamsPerCaller = 32
)

// viewers counts who follows the stream.
type viewers struct {
	mu  sync.Mutex
	all int
	of  map[string]int
}

func (v *viewers) enter(name string) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.all >= maxStreams || v.of[name] >= maxStreamsPerCaller {
		return &Refusal{http.StatusTooManyRequests, fmt.Sprintf("more than %d streams of one user, or %d in all", maxStreamsPerCaller, maxStreams), "close pages that are not needed"}
	}
	v.all++
	v.of[name]++
	return nil
}

func (v *viewers) leave(name string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.all--
	if v.of[name]--; v.of[name] == 0 {
		delete(v.of, name)
	}
}

// stream sends what changes. Nothing is kept for a viewer but the version that it has seen: one
// that reads slowly gets several changes in one, and one that does not read is dropped.
func (s *Server) stream(w http.ResponseWriter, r *http.Request) {
	rc := http.NewResponseController(w)
	_ = rc.SetWriteDeadline(time.Time{}) // as in send; a connection of a test has none
	refuse := func(err error) {
		_ = rc.SetWriteDeadline(s.deadline())
		refuse(w, r, err)
	}
	c, err := s.admit(r, seesPods())
	if err == nil {
		err = s.viewers.enter(c.Name)
	}
	if err != nil {
		refuse(err)
		return
	}
	defer s.viewers.leave(c.Name)
	st, err := s.state()
	if err != nil {
		refuse(err)
		return
	}
	s.looking.Add(1)
	defer s.looking.Add(-1)
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no") // a proxy must not collect events
	w.WriteHeader(http.StatusOK)
	v := &viewer{server: s, w: w, r: r, rc: rc}
	if err := v.follow(r.Context(), st); err != nil {
		v.bye(err)
	}
}

// viewer is one who follows the stream.
type viewer struct {
	server *Server
	w      http.ResponseWriter
	r      *http.Request
	rc     *http.ResponseController
	seen   int64
}

// errEnds says that the server ends.
var errEnds = errors.New("the server ends")

// follow sends events until the viewer goes, may not see more, or the server ends. The error is
// what the viewer is told.
func (v *viewer) follow(ctx context.Context, st *state) error {
	next := st.next
	if err := v.greet(st); err != nil {
		return err
	}
	beat := v.server.config.Clock.NewTicker(heartbeat)
	defer beat.Stop()
	// Not all at the same time.
	review := v.server.config.Clock.NewTicker(wait.Jitter(reviewEvery, 0.2))
	defer review.Stop()
	unsaid := 0
	for {
		if st != nil {
			data, err := v.news(st)
			if err != nil {
				return err
			}
			// While it is written, which a slow viewer makes long, nothing else of the state is kept.
			next, st = st.next, nil
			if err := v.send(data); err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return errEnds
		case <-next:
			st = v.server.states.current()
		case <-beat.C():
			if err := v.send([]byte(": still here\n\n")); err != nil {
				return err
			}
		case <-review.C():
			err := v.review(ctx)
			if unsaid++; err == nil {
				unsaid = 0
			} else if !passing(err) || unsaid == maxUnsaid {
				return err
			}
		}
	}
}

// greet says from which version on the viewer is told: from the one that it has seen, if it can
// join there.
func (v *viewer) greet(st *state) error {
	seen, err := strconv.ParseInt(v.r.Header.Get("Last-Event-ID"), 10, 64)
	if err != nil || !st.joins(seen) {
		seen = st.version
	}
	data, err := v.anew(st, seen)
	if err != nil {
		return err
	}
	return v.send(data)
}

// anew says hello.
func (v *viewer) anew(st *state, version int64) ([]byte, error) {
	data, _, err := frames([]event{st.hello(version)}, version, version)
	v.seen = version
	return data, err
}

// news is what changed since the viewer was told last.
func (v *viewer) news(st *state) ([]byte, error) {
	if st.version == v.seen {
		return nil, nil
	}
	if !st.joins(v.seen) {
		return v.anew(st, st.version)
	}
	data, ok, err := frames(st.after(v.seen), v.seen, st.version)
	if err == nil && !ok {
		return v.anew(st, st.version)
	}
	v.seen = st.version
	return data, err
}

// passing reports whether a refusal may pass by itself.
func passing(err error) bool {
	var r *Refusal
	return errors.As(err, &r) && (r.Code == http.StatusTooManyRequests || r.Code == http.StatusServiceUnavailable)
}

// review asks again whether the viewer may see what it is sent.
func (v *viewer) review(ctx context.Context) error {
	c, err := v.server.config.Access.Authenticate(v.r.WithContext(ctx))
	if err == nil {
		err = v.server.config.Access.Authorize(ctx, c, seesPods())
	}
	return err
}

// send writes an event. Its deadline does not count for what comes after: over HTTP/2 it would end
// the stream though nothing is being written, such as while a review takes long.
func (v *viewer) send(data []byte) error {
	if len(data) == 0 {
		return nil
	}
	err := v.write(data)
	if err == nil {
		_ = v.rc.SetWriteDeadline(time.Time{}) // a connection of a test has none
	}
	return err
}

func (v *viewer) write(data []byte) error {
	_ = v.rc.SetWriteDeadline(v.server.deadline()) // a connection of a test has none
	if _, err := v.w.Write(data); err != nil {
		return err
	}
	return v.rc.Flush()
}

// bye says why the stream ends, if the viewer still listens. The deadline of its write counts for
// the end of the answer, too.
func (v *viewer) bye(err error) {
	reason := "the stream cannot go on"
	var refused *Refusal
	switch {
	case errors.Is(err, errEnds):
		reason = err.Error()
	case errors.As(err, &refused):
		reason = refused.Text
		if refused.Code == http.StatusUnauthorized {
			reason = "the token has expired"
		}
	}
	data, _ := json.Marshal(byeEvent{reason}) // one string: it cannot fail
	// Who does not listen is gone already.
	_ = v.write(fmt.Appendf(nil, "event: bye\ndata: %s\n\n", data))
}
