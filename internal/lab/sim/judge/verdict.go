// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

// DefaultBytes is the size of the all-reduce that is judged: 1 GB, about the gradients of half a
// billion parameters in BF16. With it bandwidth decides, and not latency.
const DefaultBytes = 1e9

// Verdict holds the results of all submitted pods. Policies are compared by it only where all their pods
// ended (Unfinished is 0): a policy that leaves the unlucky waiting has fine means.
type Verdict struct {
	// AllReduceMS decides between policies: the mean time of an all-reduce over the pods of two GPUs
	// or more, each weighed by its GPUs, since a slow ring holds up all of them. Milliseconds.
	AllReduceMS float64 `json:"allReduceMS"`
	// CompletionS is the mean from arrival to end over all pods, each weighed by its GPUs. Seconds.
	CompletionS float64 `json:"completionS"`
	// LargestWaitS is the mean wait of the pods of the most GPUs. Seconds.
	LargestWaitS float64 `json:"largestWaitS"`
	// BySize is by the GPUs of a pod.
	BySize map[int]SizeVerdict `json:"bySize"`
	// Gangs are the jobs of several pods of a replay on a fabric; their pods are in BySize too.
	Gangs *GangVerdict `json:"gangs,omitempty"`
}

// SizeVerdict is a Verdict of the pods of one size.
type SizeVerdict struct {
	Pods        int     `json:"pods"`
	AllReduceMS float64 `json:"allReduceMS"` // mean, milliseconds; 0 for one GPU
	MeanWaitS   float64 `json:"meanWaitS"`
	P95WaitS    float64 `json:"p95WaitS"`
	CompletionS float64 `json:"completionS"` // mean from arrival to end, seconds
}

// Judge collects the results of pods. It is not safe for concurrent use.
type Judge struct {
	bytes  float64
	known  map[placed]cost
	bySize map[int]*sums
	rings  map[placed]limit
	gangs  map[int]*gangSums // by GPUs
}

type placed struct {
	graph *nvtopo.Graph
	set   nvtopo.Mask
}

type cost struct{ allReduce, slowdown float64 }

type sums struct {
	allReduce, completion float64
	waits                 []float64
}

// New returns a judge of all-reduces of so many bytes.
func New(bytes float64) *Judge {
	return &Judge{bytes: bytes, known: map[placed]cost{}, bySize: map[int]*sums{}, rings: map[placed]limit{}, gangs: map[int]*gangSums{}}
}

func (j *Judge) cost(g *nvtopo.Graph, set nvtopo.Mask) (cost, error) {
	at := placed{g, set}
	c, ok := j.known[at]
	if ok {
		return c, nil
	}
	var err error
	if c.allReduce, err = AllReduce(g, set, j.bytes); err != nil {
		return cost{}, err
	}
	c.slowdown = math.NaN() // computed by callers that let runs depend on it
	j.known[at] = c
	return c, nil
}

// Slowdown returns the ratio of a pod's run on a set to its run on the reference.
func (j *Judge) Slowdown(g *nvtopo.Graph, set nvtopo.Mask) (float64, error) {
	c, err := j.cost(g, set)
	if err != nil || !math.IsNaN(c.slowdown) {
		return c.slowdown, err
	}
	if c.slowdown, err = Slowdown(g, set, j.bytes, c.allReduce); err != nil {
		return 0, err
	}
	if math.IsInf(c.slowdown, 1) {
		return 0, fmt.Errorf("GPUs %v have no ring of known bandwidth", set.Positions())
	}
	j.known[placed{g, set}] = c
	return c.slowdown, nil
}

// Add adds a pod that waited and then ran for so many seconds on a set of GPUs.
func (j *Judge) Add(g *nvtopo.Graph, set nvtopo.Mask, wait, run float64) error {
	c, err := j.cost(g, set)
	if err != nil {
		return err
	}
	s := j.bySize[set.Len()]
	if s == nil {
		s = &sums{}
		j.bySize[set.Len()] = s
	}
	s.allReduce += c.allReduce
	s.completion += wait + run
	s.waits = append(s.waits, wait)
	return nil
}

// Verdict returns the verdict on all pods so far.
func (j *Judge) Verdict() *Verdict {
	v := &Verdict{BySize: map[int]SizeVerdict{}, Gangs: j.gangVerdict()}
	var multi, all float64 // GPUs
	// In order of size: floating-point sums depend on it.
	for _, k := range slices.Sorted(maps.Keys(j.bySize)) {
		s := j.bySize[k]
		n := float64(len(s.waits))
		slices.Sort(s.waits)
		total := 0.0
		for _, w := range s.waits {
			total += w
		}
		v.BySize[k] = SizeVerdict{
			Pods: len(s.waits), AllReduceMS: 1e3 * s.allReduce / n, MeanWaitS: total / n, P95WaitS: s.waits[int(math.Ceil(0.95*n))-1],
			CompletionS: s.completion / n,
		}
		v.LargestWaitS = total / n
		v.CompletionS += float64(k) * s.completion
		all += float64(k) * n
		if k > 1 {
			v.AllReduceMS += float64(k) * 1e3 * s.allReduce
			multi += float64(k) * n
		}
	}
	if multi > 0 {
		v.AllReduceMS /= multi
	}
	if all > 0 {
		v.CompletionS /= all
	}
	return v
}
