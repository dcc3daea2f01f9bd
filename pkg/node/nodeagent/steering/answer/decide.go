// SPDX-License-Identifier: Apache-2.0

package answer

import (
	"cmp"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/nvtopo/nvtopo/pkg/node/nodeagent/steering/podfinder"
	"github.com/nvtopo/nvtopo/pkg/node/nodeagent/steering/question"
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

// Outcomes of a question (label result).
const (
	ResultSteered  = "steered"  // the devices chosen for the container, or for its pod
	ResultForeign  = "foreign"  // nothing was chosen for the container
	ResultConflict = "conflict" // a chosen device is held, unhealthy or unknown
	ResultForced   = "forced"   // kubelet had already decided otherwise
	ResultRefused  = "refused"  // answered with an error
)

// Offer is the input of Decide: the question, the requesting container, and the devices of other pods.
// Sets are of physical ids, except InUse and the sets in the question.
type Offer struct {
	Question question.Question
	Who      *podfinder.Asker // nil if it is unknown
	Strict   bool             // reject instead of giving other devices than chosen
	Unseen   error            // the error if the container is unknown and the pod must be rejected
	Own      question.Set     // chosen for the requesting pod, without those that its other containers keep
	Later    question.Set     // the part of own that later containers should get
	Promised question.Set     // chosen for other pods that do not hold it yet
	Held     question.Set     // recorded for other pods: not on offer, unless kubelet errs or they have just ended
	InUse    question.Set     // ids that other containers have, although kubelet offers them
	Tables   *nvtopo.Tables
	// Why returns the reason why a chosen physical id is not on offer. forced means that kubelet decided so,
	// and the device itself is fine.
	Why func(id string) (reason string, forced bool)
}

// NewOffer returns the input of Decide according to the facts. healthy is the list that kubelet was sent,
// or nil. strict holds for all pods; without it, a pod that reads nvtopo's annotations is strict.
func NewOffer(f *podfinder.Facts, who *podfinder.Asker, strict bool, healthy map[string]bool) Offer {
	o := Offer{Question: f.Question, Who: who, Strict: strict}
	o.Promised, o.Held = f.Others(who)
	o.InUse = f.InUse(who)
	if who == nil {
		o.Unseen = f.Unseen(strict)
	} else {
		o.Strict = strict || who.Pod.Trusts()
		o.Own, o.Later = f.Own(who)
	}
	o.Why = func(id string) (string, bool) { return f.Why(id, who, healthy) }
	return o
}

// Decision is the answer to a question. If Narrowed is set, the inner plugin chooses from it, and IDs is
// the answer if it does not.
type Decision struct {
	IDs      []string
	Narrowed *question.Question
	Result   string
	Err      error
}

// Decide returns the devices for a question, or an error. It is pure.
func Decide(o Offer) Decision {
	q := &o.Question
	if q.Size < 1 || q.Size > len(q.Offered) || len(q.Must) > q.Size {
		return Decision{Result: ResultRefused, Err: status.Errorf(codes.InvalidArgument,
			"%s: %d devices asked for, %d of them given, out of %d", q.Resource, q.Size, len(q.Must), len(q.Offered))}
	}
	if err := cmp.Or(o.Unseen, o.Who.Misled(q.Resource)); err != nil {
		return Decision{Result: ResultRefused, Err: err}
	}
	if taken := q.Overlapping(o.InUse); len(taken) > 0 {
		left := q.Offered.Without(taken).With(question.SetOf(q.Must))
		if len(left) < q.Size {
			return Decision{Result: ResultRefused, Err: status.Errorf(codes.FailedPrecondition,
				"%s: only %d of the %d devices that kubelet offers are free: other containers still have the rest",
				q.Resource, len(left), len(q.Offered))}
		}
		*q = question.New(q.Resource, left.Sorted(), q.Must, q.Size)
	}
	if o.Who == nil || o.Who.Want == nil {
		return o.foreign()
	}
	if ids, ok := o.chosen(); ok {
		return Decision{IDs: ids, Result: ResultSteered}
	}
	return o.conflict()
}

// chosen returns the devices that the scheduler chose for the container. If that is not possible, it adds
// other devices of the pod that are left for this container. This is for pods whose init containers hold
// more than a later container requests: kubelet passes on any of them.
func (o *Offer) chosen() ([]string, bool) {
	ids, ok := o.Question.Take(question.SetOf(o.Who.Want))
	if ok || (o.Strict && !o.Who.Inherits(o.Question.Resource)) {
		return ids, ok
	}
	pools := []question.Set{question.SetOf(o.Who.Want), o.Own.Without(o.Later)}
	if o.Who.Container.Plain {
		pools = append(pools, o.Own) // later containers get them anyway
	}
	for i, pool := range pools {
		pools[i] = pool.Common(o.Own)
	}
	return o.Question.Take(pools...)
}

// conflict decides for a container that cannot get the devices chosen for it.
func (o *Offer) conflict() Decision {
	reason, forced := o.Complaint()
	d := Decision{Result: ResultConflict}
	if forced {
		d.Result = ResultForced
	}
	if o.Strict {
		d.Result = ResultRefused
		d.Err = status.Errorf(codes.FailedPrecondition, "%s: container %s of pod %s cannot get the devices chosen for it: %s",
			o.Question.Resource, o.Who.Container.Name, o.Who.Pod.Key(), reason)
		return d
	}
	n := o.narrow()
	if ids, ok := pickBest(o.Tables, &n); ok {
		d.IDs = ids
		return d
	}
	d.IDs, d.Narrowed = n.First(), &n
	return d
}

// Complaint returns the reason for a conflict: the first chosen device that is not on offer, or the
// device that was taken instead.
func (o *Offer) Complaint() (reason string, forced bool) {
	for _, id := range o.Who.Want {
		if !o.Question.Devices.Has(id) {
			reason, forced := o.Why(id)
			return id + " " + reason, forced
		}
	}
	want := question.SetOf(o.Who.Want)
	for _, id := range o.Question.Must {
		if !want.Has(question.Physical(id)) {
			return "kubelet has already taken " + id, true
		}
	}
	return "kubelet offers too few replicas of them", true
}

// foreign decides for a container without chosen devices: the inner plugin's preference among the devices
// that no other pod waits for.
func (o *Offer) foreign() Decision {
	n := o.narrow()
	d := Decision{Result: ResultForeign, Narrowed: &n}
	if len(n.Offered) == n.Size {
		d.IDs, d.Narrowed = n.Offered.Sorted(), nil
		return d
	}
	ids, ok := pickBest(o.Tables, &n)
	if !ok {
		ids = n.First()
	}
	d.IDs = ids
	return d
}

// narrow returns the question without the devices meant for others. If too few are left, it includes as
// few of those as needed.
func (o *Offer) narrow() question.Question {
	n := o.Question
	for _, avoid := range []question.Set{o.Promised.With(o.Later).With(o.Held), o.Promised.With(o.Later), o.Promised} {
		n.Offered = o.Question.Avoiding(avoid)
		if len(n.Offered) >= n.Size {
			return n
		}
	}
	n.Must, n.Offered = n.Offered.Sorted(), o.Question.Offered
	return n
}

// Needs reports whether the answer may depend on ids that may or may not be free: they are chosen for the
// requesting container, or too few others are on offer.
func (o *Offer) Needs(doubtful question.Set) bool {
	doubtful = o.Question.Overlapping(doubtful)
	if len(doubtful) == 0 {
		return false
	}
	devices := question.SetOf(question.Physicals(doubtful.Sorted()))
	if devices.HasAny(o.Own.Sorted()) || (o.Who != nil && devices.HasAny(o.Who.Want)) {
		return true
	}
	return len(o.Question.Avoiding(o.Promised.With(o.Later).With(o.Held)).Without(doubtful)) < o.Question.Size
}
