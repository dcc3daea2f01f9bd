// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

// evenThreads returns the threadsPerCore that describes the siblings of a node, or 0.
func evenThreads(n *nvtopo.NUMANode) int32 {
	cores := len(n.Siblings)
	if cores == 0 || len(n.CPUs)%cores != 0 || len(n.CPUs)/cores > maxThreads {
		return 0
	}
	threads := int32(len(n.CPUs) / cores)
	if !slices.EqualFunc(coresOf(n.CPUs, threads), n.Siblings, slices.Equal) {
		return 0
	}
	return threads
}

// coresOf returns the hyper-threads of each core of an evenly counted node; nil where
// they do not come out even.
func coresOf(cpus nvtopo.CPUSet, threads int32) []nvtopo.CPUSet {
	t := int(threads)
	if t < 1 || len(cpus) == 0 || len(cpus)%t != 0 {
		return nil
	}
	out, all := make([]nvtopo.CPUSet, len(cpus)/t), make(nvtopo.CPUSet, 0, len(cpus))
	for core := range out {
		for run := range t {
			all = append(all, cpus[run*len(out)+core])
		}
		out[core] = all[core*t : (core+1)*t : (core+1)*t]
	}
	return out
}

// readCores returns the hyper-threads of each core of a NUMA node with these CPUs.
func (r *reader) readCores(n *NUMANode, cpus nvtopo.CPUSet, path *field.Path) (cores []nvtopo.CPUSet, err error) {
	for j, s := range n.Siblings {
		threads, err := r.cpus.Read(s)
		if err == nil && len(threads) > maxThreads {
			err = fmt.Errorf("%d hyper-threads of one core, at most %d are read", len(threads), maxThreads)
		}
		if err != nil {
			return nil, fieldError(path.Child("siblings").Index(j), "%w", err)
		}
		cores = append(cores, threads)
	}
	if n.ThreadsPerCore == 0 {
		return cores, nil
	}
	if cores = coresOf(cpus, n.ThreadsPerCore); len(n.Siblings) > 0 || n.ThreadsPerCore > maxThreads || len(cores) == 0 {
		return nil, fieldError(path.Child("threadsPerCore"), "%d beside %d siblings for %d CPUs: want no siblings, and a divisor of up to %d",
			n.ThreadsPerCore, len(n.Siblings), len(cpus), maxThreads)
	}
	return cores, nil
}
