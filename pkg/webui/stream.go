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
	// heartbeat is the interval of comments that are sent without changes: proxies close idle connections.
	heartbeat = 15 * time.Second
	// reviewEvery is the interval of reviews of a viewer's token and rights. The result may be up to
	// answerTTL old.
	reviewEvery = 30 * time.Second
	// maxUnsaid is the number of consecutive reviews without a result after which a stream ends: a restart
	// of the API server ends none.
	maxUnsaid = 4
	// maxStreams bounds the streams, and maxStreamsPerCaller those of one caller: one for each open page.
	maxStreams          = 256
	maxStreamsPerCaller = 32
)

// viewers counts the streams of each caller.
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

// stream sends changes. The only state of a viewer is the last version it was sent: a slow reader gets
// several changes in one event, and a viewer that does not read is dropped.
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
	h.Set("X-Accel-Buffering", "no") // a proxy must not buffer events
	w.WriteHeader(http.StatusOK)
	v := &viewer{server: s, w: w, r: r, rc: rc}
	if err := v.follow(r.Context(), st); err != nil {
		v.bye(err)
	}
}

// viewer is one client of the stream.
type viewer struct {
	server *Server
	w      http.ResponseWriter
	r      *http.Request
	rc     *http.ResponseController
	seen   int64
}

// errEnds is the reason for a stream that ends with the server.
var errEnds = errors.New("the server ends")

// follow sends events until the viewer disconnects, may not see more, or the server ends. The error is
// the reason that the viewer is sent.
func (v *viewer) follow(ctx context.Context, st *state) error {
	next := st.next
	if err := v.greet(st); err != nil {
		return err
	}
	beat := v.server.config.Clock.NewTicker(heartbeat)
	defer beat.Stop()
	// Jitter spreads the reviews of many viewers.
	review := v.server.config.Clock.NewTicker(wait.Jitter(reviewEvery, 0.2))
	defer review.Stop()
	unsaid := 0
	for {
		if st != nil {
			data, err := v.news(st)
			if err != nil {
				return err
			}
			// No reference to the state is kept during a write, which a slow viewer can make long.
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

// greet sends the version after which changes follow: the last one the viewer has seen, if the changes
// since are known.
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

// anew returns the hello event, and resets the viewer's version.
func (v *viewer) anew(st *state, version int64) ([]byte, error) {
	data, _, err := frames([]event{st.hello(version)}, version, version)
	v.seen = version
	return data, err
}

// news returns the changes since the viewer's version.
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

// passing reports whether a refusal is temporary.
func passing(err error) bool {
	var r *Refusal
	return errors.As(err, &r) && (r.Code == http.StatusTooManyRequests || r.Code == http.StatusServiceUnavailable)
}

// review checks again whether the viewer may see the stream.
func (v *viewer) review(ctx context.Context) error {
	c, err := v.server.config.Access.Authenticate(v.r.WithContext(ctx))
	if err == nil {
		err = v.server.config.Access.Authorize(ctx, c, seesPods())
	}
	return err
}

// send writes an event. Its deadline is cleared afterwards: over HTTP/2 it would end the stream even
// without a write in progress, for example during a long review.
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

// bye sends the reason for the end of the stream, if the viewer still reads. The deadline of its write
// also applies to the end of the response.
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
	// A viewer that does not read is already gone.
	_ = v.write(fmt.Appendf(nil, "event: bye\ndata: %s\n\n", data))
}
