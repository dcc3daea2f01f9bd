// SPDX-License-Identifier: Apache-2.0

package nodeindex

import "github.com/nvtopo/nvtopo/pkg/nvtopo"

// Left is a machine that is left to larger pods: of those that the pod prefers most for their hardware,
// the one with the fastest all-reduce.
type Left struct {
	Node    int // as Lead was told
	PodsOf  int // GPUs of the pods that it is left to: the size of the machine by which it is
	Seconds float64

	preference int64
}

// Seconds is the time of an all-reduce around the ring of an offer's set, of a message of so many bytes
// for each of its GPUs; 0 for one GPU.
func (o *Offer) Seconds(gpus int, bytes int64) float64 {
	if gpus < 2 {
		return 0
	}
	return nvtopo.CostModel{Bandwidth: max(1, o.Ring), Latency: o.Latency}.AllReduce(nvtopo.AlgorithmRing, gpus, float64(bytes))
}

// consider takes a machine that is left to larger pods.
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
