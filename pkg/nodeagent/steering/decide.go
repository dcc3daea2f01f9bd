// SPDX-License-Identifier: Apache-2.0

package steering

import (
	"cmp"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

// The outcome of a question (label result).
const (
	resultSteered  = "steered"  // the devices chosen for the container, or for its pod
	resultForeign  = "foreign"  // nothing was chosen for the container
	resultConflict = "conflict" // a chosen device is held, unhealthy or unknown
	resultForced   = "forced"   // kubelet had already decided otherwise
	resultRefused  = "refused"  // answered with an error
)

// offer is the input of decide: the question, who asks, and what other pods wait for.
// Sets are of physical ids, except inUse and the sets in the question.
type offer struct {
	q        question
	who      *asker // nil if nobody was found
	strict   bool   // refuse instead of giving other devices than chosen
	unseen   error  // the error if nobody was found and the pod must be refused
	own      idSet  // chosen for the asking pod, without what its other containers keep
	later    idSet  // the part of own that later containers should get
	reserved idSet  // chosen for other pods that do not hold it yet
	held     idSet  // recorded for other pods: not on offer, unless kubelet errs or they have just ended
	inUse    idSet  // ids that other containers have, although kubelet offers them
	tables   *nvtopo.Tables
	// why says why a chosen physical id is not on offer. forced means that kubelet
	// decided so, and the device itself is fine.
	why func(id string) (reason string, forced bool)
}

// decision is what to answer. If narrowed is set, the inner plugin is asked to choose
// from it, and ids is the answer if it does not.
type decision struct {
	ids      []string
	narrowed *question
	result   string
	err      error
}

// decide answers a question. It is pure.
func decide(o offer) decision {
	q := &o.q
	if q.size < 1 || q.size > len(q.offered) || len(q.must) > q.size {
		return decision{result: resultRefused, err: status.Errorf(codes.InvalidArgument,
			"%s: %d devices asked for, %d of them given, out of %d", q.resource, q.size, len(q.must), len(q.offered))}
	}
	if err := cmp.Or(o.unseen, o.who.misled(q.resource)); err != nil {
		return decision{result: resultRefused, err: err}
	}
	if taken := q.overlapping(o.inUse); len(taken) > 0 {
		left := q.offered.without(taken).with(newSet(q.must))
		if len(left) < q.size {
			return decision{result: resultRefused, err: status.Errorf(codes.FailedPrecondition,
				"%s: only %d of the %d devices that kubelet offers are free: other containers still have the rest",
				q.resource, len(left), len(q.offered))}
		}
		*q = newQuestion(q.resource, left.sorted(), q.must, q.size)
	}
	if o.who == nil || o.who.want == nil {
		return o.foreign()
	}
	if ids, ok := o.chosen(); ok {
		return decision{ids: ids, result: resultSteered}
	}
	return o.conflict()
}

// chosen takes what the scheduler chose for the container. If that is not possible, it
// also takes other devices of the pod that are left for this container. This is for
// pods whose init containers hold more than a later container asks for: kubelet passes
// on any of them.
func (o *offer) chosen() ([]string, bool) {
	ids, ok := o.q.take(newSet(o.who.want))
	if ok || (o.strict && !o.who.inherits(o.q.resource)) {
		return ids, ok
	}
	pools := []idSet{newSet(o.who.want), o.own.without(o.later)}
	if o.who.container.plain {
		pools = append(pools, o.own) // later containers get them anyway
	}
	for i, pool := range pools {
		pools[i] = pool.common(o.own)
	}
	return o.q.take(pools...)
}

// conflict decides for a container that cannot get what was chosen for it.
func (o *offer) conflict() decision {
	reason, forced := o.complaint()
	d := decision{result: resultConflict}
	if forced {
		d.result = resultForced
	}
	if o.strict {
		d.result = resultRefused
		d.err = status.Errorf(codes.FailedPrecondition, "%s: container %s of pod %s cannot get the devices chosen for it: %s",
			o.q.resource, o.who.container.name, o.who.pod.key(), reason)
		return d
	}
	n := o.narrow()
	if ids, ok := pickBest(o.tables, &n); ok {
		d.ids = ids
		return d
	}
	d.ids, d.narrowed = n.first(), &n
	return d
}

// complaint names the first chosen device that is not on offer, or the one that was
// taken instead.
func (o *offer) complaint() (reason string, forced bool) {
	for _, id := range o.who.want {
		if !o.q.devices.has(id) {
			reason, forced := o.why(id)
			return id + " " + reason, forced
		}
	}
	want := newSet(o.who.want)
	for _, id := range o.q.must {
		if !want.has(physical(id)) {
			return "kubelet has already taken " + id, true
		}
	}
	return "kubelet offers too few replicas of them", true
}

// foreign decides for a container for which nothing was chosen: the inner plugin's
// preference among the devices that no other pod waits for.
func (o *offer) foreign() decision {
	n := o.narrow()
	d := decision{result: resultForeign, narrowed: &n}
	if len(n.offered) == n.size {
		d.ids, d.narrowed = n.offered.sorted(), nil
		return d
	}
	ids, ok := pickBest(o.tables, &n)
	if !ok {
		ids = n.first()
	}
	d.ids = ids
	return d
}

// narrow is the question without the devices meant for others. If too few are left, it
// includes as few of those as needed.
func (o *offer) narrow() question {
	n := o.q
	for _, avoid := range []idSet{o.reserved.with(o.later).with(o.held), o.reserved.with(o.later), o.reserved} {
		n.offered = o.q.avoiding(avoid)
		if len(n.offered) >= n.size {
			return n
		}
	}
	n.must, n.offered = n.offered.sorted(), o.q.offered
	return n
}

// needs reports whether the answer may depend on ids that may or may not be free: they
// are chosen for the asking container, or too few others are on offer.
func (o *offer) needs(doubtful idSet) bool {
	doubtful = o.q.overlapping(doubtful)
	if len(doubtful) == 0 {
		return false
	}
	devices := newSet(physicals(doubtful.sorted()))
	if devices.hasAny(o.own.sorted()) || (o.who != nil && devices.hasAny(o.who.want)) {
		return true
	}
	return len(o.q.avoiding(o.reserved.with(o.later).with(o.held)).without(doubtful)) < o.q.size
}
