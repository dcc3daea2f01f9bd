// SPDX-License-Identifier: Apache-2.0

package nodeindex

import "github.com/nvtopo/nvtopo/pkg/nvtopo"

// Left is a machine that is left to larger pods: of those with the greatest hardware preference of the
// pod, the one with the fastest all-reduce.
type Left struct {
	Node    int // as passed to Lead
	PodsOf  int // GPUs of the pods that it is left to: the size of the machine by which it is
	Seconds float64

	preference int64
}

// Seconds returns the time of an all-reduce around the ring of an offer's set, of a message of the given
// bytes for each of its GPUs; 0 for one GPU.
func (o *Offer) Seconds(gpus int, bytes int64) float64 {
	if gpus < 2 {
		return 0
	}
	return nvtopo.CostModel{Bandwidth: max(1, o.Ring), Latency: o.Latency}.AllReduce(nvtopo.AlgorithmRing, gpus, float64(bytes))
}

// consider keeps a machine left to larger pods if it is better than the one held.
func (l *Left) consider(r *Reserved, node int, o *Offer, seconds float64) {
	if l.PodsOf > 0 && (o.Preference < l.preference || o.Preference == l.preference && seconds >= l.Seconds) {
		return
	}
	*l = Left{Node: node, PodsOf: o.Together, Seconds: seconds, preference: o.Preference}
	if r.GPUs.Has(o.GPUs) {
		l.PodsOf = o.GPUs
	}
}

// LeftFaster returns the machine that would have been taken for its faster links if it were not left to
// larger pods; false if there is none.
func (b *Best) LeftFaster() (Left, bool) {
	l := b.Left
	return l, l.PodsOf > 0 && b.Any && !b.Last && l.preference >= b.Preference && l.Seconds*(1+b.Tolerance) < b.Least
}
