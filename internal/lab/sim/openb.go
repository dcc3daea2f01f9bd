// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"errors"
	"math/rand/v2"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

// Used columns of openb pod lists. Source: alibaba/clusterdata, cluster-trace-gpu-v2023.
const (
	openbGPUs      = "num_gpu"
	openbCreated   = "creation_time"
	openbScheduled = "scheduled_time"
	openbDeleted   = "deletion_time"
)

var openbColumns = []string{
	"name", "cpu_milli", "memory_mib", openbGPUs, "gpu_milli", "gpu_spec", "qos", "pod_phase",
	openbCreated, openbDeleted, openbScheduled,
}

// openb reads the rows of one openb pod list.
type openb struct {
	rng   *rand.Rand
	timed bool // the list has creation times
}

func newOpenb(seed uint64) *openb {
	return &openb{rng: rand.New(rand.NewPCG(seed, streamTimes))}
}

func (o *openb) job(t *table) (Job, bool, error) {
	_, o.timed = t.column[openbCreated]
	j := Job{Pods: 1}
	var err error
	if j.GPUs, err = t.number(openbGPUs, 0, nvtopo.MaxGPUs); err != nil || j.GPUs == 0 {
		return Job{}, false, err
	}
	if o.timed {
		if j.ArrivalS, err = t.seconds(openbCreated); err != nil {
			return Job{}, false, err
		}
	}
	if j.DurationS, err = o.duration(t, j.ArrivalS); err != nil {
		return Job{}, false, err
	}
	return j, true, nil
}

func (o *openb) duration(t *table, arrival float64) (float64, error) {
	u := o.rng.Float64() // always, so that one pod's times do not shift the others'
	if !t.has(openbDeleted) {
		q := phillyDurations(1)
		return q.at(u), nil
	}
	if !o.timed {
		return 0, t.at(openbDeleted, errors.New("without a column "+openbCreated))
	}
	begin := arrival
	var err error
	if t.has(openbScheduled) {
		if begin, err = t.seconds(openbScheduled); err != nil {
			return 0, err
		}
	}
	end, err := t.seconds(openbDeleted)
	if err != nil {
		return 0, err
	}
	if end <= begin {
		return 0, t.at(openbDeleted, errors.New("the pod ends before it starts"))
	}
	return end - begin, nil
}

// finish gives the jobs of a list without times arrivals in a random order: such lists are put together
// by size, so their order has no meaning.
func (o *openb) finish(jobs []Job) {
	if o.timed {
		return
	}
	o.rng.Shuffle(len(jobs), func(i, j int) { jobs[i], jobs[j] = jobs[j], jobs[i] })
	var now float64
	for i := range jobs {
		now += o.rng.ExpFloat64()
		jobs[i].ArrivalS = now
	}
}
