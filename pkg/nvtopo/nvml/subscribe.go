// SPDX-License-Identifier: Apache-2.0

package nvml

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"
)

// standing is the state of a GPU in an event set.
type standing int

const (
	unasked   standing = iota // it was not present
	watched                   // its events are received
	eventless                 // it has none
	refused                   // the driver failed, or refused
)

// subscription is an event set and the state of each GPU in it.
type subscription struct {
	set   EventSet
	at    time.Time // time of the last attempt to register the GPUs that are not watched
	gpus  map[string]standing
	fault map[string]error // UUID -> why it is refused, if the driver gave a reason
}

// errEventless means that no GPU can be watched.
var errEventless = &Error{Call: "nvmlDeviceRegisterEvents", Kind: KindNotSupported, Text: "no GPU has events"}

// errUnasked is why a GPU is not watched that could be read but had not answered before the set was made.
var errUnasked = &Error{Call: "nvmlDeviceRegisterEvents", Kind: KindTimeout, Text: "the GPU did not answer before it"}

// subscribe makes an event set of every GPU that can be registered. On success the caller owns the set
// and one reference on the library.
//
// After a refusal the set's content is undefined (nvml.h, nvmlDeviceRegisterEvents), so another is made
// without that GPU: one set more than the number of refused GPUs.
func (d *Discoverer) subscribe(ctx context.Context) (*subscription, error) {
	s := &subscription{gpus: map[string]standing{}, fault: map[string]error{}}
	defer d.report(s)
	for whole, idle := false, true; !whole; {
		// The new set first: the library must not be shut down and initialised in between.
		e, err := d.openSet(ctx)
		if s.set != nil {
			d.discard(ctx, s.set, idle)
		}
		if err != nil {
			return nil, err
		}
		s.set = e.set
		maps.DeleteFunc(s.gpus, func(_ string, st standing) bool { return st != refused })
		whole, idle = d.fill(ctx, s, e.devices)
	}
	if !slices.Contains(slices.Collect(maps.Values(s.gpus)), watched) {
		d.discard(ctx, s.set, true)
		return nil, errEventless
	}
	s.waive(d.readable.Load(), d.opts.Clock.Now(), errUnasked)
	return s, nil
}

// emptySet is a new event set and the number of devices for it.
type emptySet struct {
	set     EventSet
	devices int
}

func (d *Discoverer) openSet(ctx context.Context) (emptySet, error) {
	return guardLate(ctx, d.dog, "open event set", func() (e emptySet, err error) {
		if err := d.lib.Init(); err != nil {
			return e, err
		}
		defer func() {
			if err != nil {
				_ = d.lib.Shutdown()
			}
		}()
		if e.devices, err = d.lib.DeviceCount(); err != nil {
			return e, err
		}
		e.set, err = d.lib.NewEventSet()
		return e, err
	}, func(e emptySet) { d.discard(ctx, e.set, true) })
}

// fill registers the devices, each under a watchdog of its own, and stops at a refused one: the set is
// not whole then. It is not idle while a call is stuck in it.
func (d *Discoverer) fill(ctx context.Context, s *subscription, devices int) (whole, idle bool) {
	ctx = context.WithoutCancel(ctx) // a stop must not leave a call behind in the set
	for i := range devices {
		if d.dog.stuckIn(readSequence(i)) {
			continue // the call would hang too
		}
		sequence := fmt.Sprintf("events of GPU %d", i)
		var uuid string
		dev, err := guard(ctx, d.dog, sequence, func() (Device, error) { return d.lib.Device(i) })
		if err == nil {
			uuid, err = guard(ctx, d.dog, sequence, dev.UUID)
		}
		if err != nil || s.gpus[uuid] == refused {
			continue // readings report a lost device
		}
		_, err = guard(ctx, d.dog, sequence, func() (struct{}, error) { return struct{}{}, s.set.Register(dev) })
		switch {
		case err == nil:
			s.gpus[uuid] = watched
		case KindOf(err) == KindNotSupported:
			s.gpus[uuid] = eventless // the set is still good for the others
		default:
			s.gpus[uuid], s.fault[uuid] = refused, err
			return false, !d.dog.stuckIn(sequence)
		}
	}
	return true, true
}

// waive marks GPUs that could be read and are not watched as refused for now, so that they are not
// registered again at once. err is why they were not registered.
func (s *subscription) waive(readable *[]string, now time.Time, err error) {
	s.at = now
	if readable == nil {
		return
	}
	for _, uuid := range *readable {
		if s.gpus[uuid] == unasked {
			s.gpus[uuid], s.fault[uuid] = refused, err
		}
	}
}

// behind reports whether a GPU could be read that is not watched: one that was absent when the set was
// made, or was away since, as during a reset, after which it is a new GPU to the driver; or, after some
// time, one that was refused.
func (s *subscription) behind(readable []string, now time.Time) bool {
	maps.DeleteFunc(s.gpus, func(uuid string, _ standing) bool { return !slices.Contains(readable, uuid) })
	return slices.ContainsFunc(readable, func(uuid string) bool {
		return s.gpus[uuid] == unasked || s.gpus[uuid] == refused && now.Sub(s.at) >= watchRetry
	})
}

// keepUp replaces a subscription that lacks GPUs of the latest reading by one that has more of them. The
// new set is made, and the old one drained, before the old one is given up, so no event is lost; one may
// be delivered twice, which is harmless.
func (d *Discoverer) keepUp(ctx context.Context, s *subscription, out chan<- Event) *subscription {
	readable := d.readable.Load()
	if readable == nil || !s.behind(*readable, d.opts.Clock.Now()) {
		return s
	}
	fresh, err := d.subscribe(ctx)
	if err != nil || !fresh.betters(s) {
		if err == nil {
			d.discard(ctx, fresh.set, true)
			s.learn(fresh)
			err = errUnasked
		}
		s.waive(readable, d.opts.Clock.Now(), err)
		d.report(s)
		return s
	}
	for ctx.Err() == nil {
		ev, err := d.wait(ctx, s.set, 0)
		if err != nil || ev == nil {
			break
		}
		d.deliver(ctx, out, *ev)
	}
	d.discard(ctx, s.set, !d.dog.stuckIn(waitEvents))
	return fresh
}

// betters reports whether a GPU is watched that is not watched in the other.
func (s *subscription) betters(other *subscription) bool {
	for uuid, st := range s.gpus {
		if st == watched && other.gpus[uuid] != watched {
			return true
		}
	}
	return false
}

// learn takes over the GPU states of another subscription that is no better.
func (s *subscription) learn(other *subscription) {
	for uuid, st := range other.gpus {
		if s.gpus[uuid] == unasked {
			s.gpus[uuid] = st
		}
	}
	maps.Copy(s.fault, other.fault)
}

// report makes readings report whose events are not watched.
func (d *Discoverer) report(s *subscription) {
	fault := maps.Clone(s.fault)
	maps.DeleteFunc(fault, func(uuid string, _ error) bool { return s.gpus[uuid] == watched })
	d.unwatched.Store(&fault)
}

// noteUnwatched reports a problem for each GPU that could be read and is not watched, or one for all, and
// notifies the watch of new GPUs.
func (d *Discoverer) noteUnwatched(b *build) {
	if err := d.blind.Load(); err != nil {
		b.note("", "no events can be watched: %v", *err)
	}
	var readable []string
	fault := d.unwatched.Load()
	for _, r := range b.devs {
		if !r.askable() {
			continue
		}
		readable = append(readable, r.uuid)
		if fault != nil && (*fault)[r.uuid] != nil {
			b.note(r.label(), "its events cannot be watched: %v", (*fault)[r.uuid])
		}
	}
	last := d.readable.Swap(&readable)
	if last == nil || slices.ContainsFunc(readable, func(uuid string) bool { return !slices.Contains(*last, uuid) }) {
		select {
		case d.arrived <- struct{}{}:
		default: // one token is enough
		}
	}
}
