// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"hash/fnv"
	"io"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"
)

// Kind is a fault of a request.
type Kind string

// The kinds of faults.
const (
	Slow        Kind = "slow"        // forwarded after a delay
	Conflict    Kind = "conflict"    // 409 without forwarding
	TooMany     Kind = "too-many"    // 429 without forwarding
	Internal    Kind = "internal"    // 500 without forwarding
	Unavailable Kind = "unavailable" // 503 without forwarding
	Refused     Kind = "refused"     // connection cut without forwarding
	Lost        Kind = "answer-lost" // carried out, then the connection cut
	TimedOut    Kind = "timed-out"   // carried out, then 504
	// Responses of the API server when its storage fails, and of a load balancer when the API server fails,
	// after the write was carried out.
	ConflictAfter    Kind = "conflict-after"    // carried out, then 409
	InternalAfter    Kind = "internal-after"    // carried out, then 500, with Retry-After or without
	UnavailableAfter Kind = "unavailable-after" // carried out, then 503, likewise
	Late             Kind = "late"              // connection cut at once, carried out after a delay
	Expired          Kind = "expired"           // 410 to a watch: the client has to list again
	WatchCut         Kind = "watch-cut"         // a running watch ended by CutWatches
	WatchDelay       Kind = "watch-events"      // events held back by DelayWatches, counted in pieces of the stream
)

// Traffic selects requests.
type Traffic int

// The kinds of traffic.
const (
	Reads   Traffic = iota + 1 // get, list
	Writes                     // create, update, patch, delete
	Watches                    // watch
)

// Rule injects a fault into a share of the requests that it matches.
type Rule struct {
	Kind    Kind
	On      Traffic
	Share   float64       // between 0 and 1
	AtLeast time.Duration // of Slow and Late: the shortest delay
	AtMost  time.Duration // the longest delay
	Without []string      // resources left alone, for example leases
	Only    []string      // the only resources that it is about; empty: all
}

// about reports whether the rule concerns a request.
func (r *Rule) about(q *request) bool {
	return r.On == q.traffic && !slices.Contains(r.Without, q.resource) && (len(r.Only) == 0 || slices.Contains(r.Only, q.resource))
}

// verdict is the fault of one request.
type verdict struct {
	slow  time.Duration // before anything else
	kind  Kind          // empty: forwarded
	after time.Duration // of Late
	draw  float64       // in [0, 1), for variants of a kind
}

// decide returns the fault of the n-th request of its kind.
func decide(seed uint64, rules []Rule, q *request, n uint64) verdict {
	h := fnv.New64a()
	_, _ = io.WriteString(h, q.key()+" "+strconv.FormatUint(n, 10)) // a hash never fails to write
	rng := rand.New(rand.NewPCG(seed, h.Sum64()))
	v := verdict{draw: rng.Float64()}
	for i := range rules {
		r := &rules[i]
		// Drawn for every rule, so that switching one off does not change the others.
		hit, part := rng.Float64() < r.Share, rng.Float64()
		if !hit || !r.about(q) {
			continue
		}
		delay := r.AtLeast + time.Duration(part*float64(r.AtMost-r.AtLeast))
		switch {
		case r.Kind == Slow:
			v.slow += delay
		case v.kind == "":
			v.kind, v.after = r.Kind, delay
		}
	}
	return v
}
