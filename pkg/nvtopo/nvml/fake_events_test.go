// SPDX-License-Identifier: Apache-2.0

package nvml

import (
	"cmp"
	"slices"
	"time"
)

func (l *fakeLib) NewEventSet() (EventSet, error) {
	if l.events == nil {
		return nil, notSupported("nvmlEventSetCreate")
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.setErr != nil {
		return nil, l.setErr
	}
	e := &fakeEvents{l: l, gpus: map[string]bool{}}
	l.sets, l.made = append(l.sets, e), l.made+1
	return e, nil
}

type fakeEvents struct {
	l       *fakeLib
	calls   int             // that are in it; guarded by l.mu
	tainted bool            // its content is undefined; guarded by l.mu
	broken  bool            // a wait failed or hung, so it is to be given up; guarded by l.mu
	gpus    map[string]bool // UUID -> its events come; guarded by l.mu
}

func (e *fakeEvents) Register(dev Device) error {
	e.l.mu.Lock()
	defer e.l.mu.Unlock()
	g := dev.(fakeDevice).g
	e.calls++
	e.l.block(g.regHang)
	e.calls--
	err := cmp.Or(e.l.regErr, g.regErr)
	e.gpus[g.uuid] = err == nil
	e.tainted = e.tainted || err != nil && KindOf(err) != KindNotSupported
	return err
}

func (e *fakeEvents) Wait(time.Duration) (RawEvent, error) {
	e.l.mu.Lock()
	defer e.l.mu.Unlock()
	if e.tainted {
		e.l.misuse = append(e.l.misuse, "events were waited for in an undefined set")
	}
	e.calls++
	e.broken = e.broken || e.l.waitHang != nil
	e.l.block(e.l.waitHang)
	e.l.mu.Unlock()
	ev, err := e.next()
	e.l.mu.Lock()
	e.calls--
	e.l.waits++
	e.broken = e.broken || err != nil && KindOf(err) != KindTimeout
	if err == nil && ev.UUID != "" && !e.gpus[ev.UUID] {
		err = &Error{Call: "nvmlEventSetWait", Kind: KindTimeout, Text: "Timeout"} // the caller has given up
	}
	return ev, err
}

func (e *fakeEvents) next() (RawEvent, error) {
	select {
	case ev := <-e.l.events: // before the time is up, however slow the machine
		return ev, nil
	default:
	}
	select {
	case ev := <-e.l.events:
		return ev, nil
	case err := <-e.l.eventErr:
		return RawEvent{}, err
	case <-time.After(time.Millisecond):
		return RawEvent{}, &Error{Call: "nvmlEventSetWait", Kind: KindTimeout, Text: "Timeout"}
	}
}

func (e *fakeEvents) Free() error {
	e.l.mu.Lock()
	defer e.l.mu.Unlock()
	e.l.sets = slices.DeleteFunc(e.l.sets, func(o *fakeEvents) bool { return o == e })
	if e.calls > 0 {
		e.l.misuse = append(e.l.misuse, "an event set was freed under a call")
	}
	return nil
}

func (l *fakeLib) openSets() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.sets)
}

// renewed reports whether one set is open, and not one that is yet to be given up.
func (l *fakeLib) renewed() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.sets) == 1 && !l.sets[0].broken
}

// watched lists the GPUs whose events come.
func (l *fakeLib) watched() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []string
	for _, g := range l.gpus {
		if slices.ContainsFunc(l.sets, func(e *fakeEvents) bool { return e.gpus[g.uuid] && !e.tainted }) {
			out = append(out, g.uuid)
		}
	}
	return out
}
