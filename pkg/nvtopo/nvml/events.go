// SPDX-License-Identifier: Apache-2.0

package nvml

import (
	"context"
	"errors"
	"time"
)

// Event reports that something happened and the machine should be read again.
type Event struct {
	UUID string // empty when the GPU is not known
	Xid  uint64 // 0 when it was not an Xid
}

const (
	// eventWait is how long one call waits, and so how long a stop takes.
	eventWait = time.Second
	// watchRetry is the pause before a broken event set is replaced, unless a GPU arrives, and before the
	// registration of a refused GPU is retried.
	watchRetry = 30 * time.Second
)

// WatchEvents delivers driver events until the context ends, then closes the channel. Each serious Xid
// marks its GPU before it is delivered. A driver without events yields a silent channel: callers poll
// anyway.
func (d *Discoverer) WatchEvents(ctx context.Context) <-chan Event {
	out := make(chan Event)
	go func() {
		defer close(out)
		for ctx.Err() == nil {
			d.watch(ctx, out)
			timer := d.opts.Clock.NewTimer(watchRetry)
			select {
			case <-ctx.Done():
			case <-timer.C():
			case <-d.arrived: // for example all, when the driver was loaded late
			}
			timer.Stop()
		}
	}()
	return out
}

// waitEvents is the name of the watchdog's sequence of waiting for events.
const waitEvents = "wait for events"

// watch serves one event set until it breaks. Its reference on the library is released with it, so that
// after a GPU was lost the library is initialised again.
func (d *Discoverer) watch(ctx context.Context, out chan<- Event) {
	if d.dog.stuckIn(waitEvents) {
		return // it would be refused, and each set made until it ends would be kept until then
	}
	s, err := d.subscribe(ctx)
	if err != nil {
		if ctx.Err() == nil && d.noteBlind(err) {
			send(ctx, out, Event{}) // have it reported
		}
		return
	}
	d.blind.Store(nil)
	// Another stuck sequence, such as one GPU's, is no fault of this set.
	defer func() { d.discard(ctx, s.set, !d.dog.stuckIn(waitEvents)) }()
	for ctx.Err() == nil {
		s = d.keepUp(ctx, s, out)
		ev, err := d.wait(ctx, s.set, eventWait)
		switch {
		case err != nil:
			d.noteBlind(err)
			select {
			case <-d.arrived: // before it broke
			default:
			}
			send(ctx, out, Event{}) // the set broke: cause a reading
			return
		case ev != nil:
			d.deliver(ctx, out, *ev)
		}
	}
}

// noteBlind makes readings report why no events are received, and reports whether that is news. Readings
// report a missing driver themselves, and GPUs without events are not a fault.
func (d *Discoverer) noteBlind(err error) (news bool) {
	if IsNoDriver(err) || errors.Is(err, errEventless) {
		d.blind.Store(nil)
		return false
	}
	return d.blind.Swap(&err) == nil
}

// wait returns the next event, nil when there was none in the time of one call. An error means that the
// set is broken or a call in it is stuck; an event that such a call still returns marks its GPU and is
// not delivered.
func (d *Discoverer) wait(ctx context.Context, set EventSet, timeout time.Duration) (*RawEvent, error) {
	// It is not cut short: the set must not be freed under it.
	return guardLate(context.WithoutCancel(ctx), d.dog, waitEvents, func() (*RawEvent, error) {
		ev, err := set.Wait(timeout)
		switch {
		case KindOf(err) == KindTimeout: // the driver's, unlike the watchdog's, which is an error
			return nil, nil
		case err != nil:
			return nil, err
		}
		return &ev, nil
	}, func(ev *RawEvent) {
		if ev != nil {
			d.mark(*ev)
		}
	})
}

func (d *Discoverer) deliver(ctx context.Context, out chan<- Event, ev RawEvent) {
	if d.mark(ev) {
		send(ctx, out, Event(ev))
	}
}

// mark records an Xid of a GPU, and reports whether the event is a reason to read the machine.
func (d *Discoverer) mark(ev RawEvent) bool {
	class := d.classOf(ev.Xid)
	switch {
	case ev.Xid == 0:
		return true
	case class == xidApplication:
		return false
	case ev.UUID != "":
		d.xids.record(ev.UUID, class, ev.Xid, d.opts.Clock.Now())
	}
	return true
}

func send(ctx context.Context, out chan<- Event, ev Event) {
	select {
	case out <- ev:
	case <-ctx.Done():
	}
}
