// SPDX-License-Identifier: Apache-2.0

package generate

import (
	"strconv"

	v1 "k8s.io/api/core/v1"
)

// openMP returns the variables for one process per GPU. No variable lists CPUs: a list written before the
// CPUs are chosen names CPUs that the container may not use.
func openMP(cpus, gpus int) []v1.EnvVar {
	// Each process numbers the places of the whole container from its first core. Several of them would bind
	// to the same cores, so only a single process binds its threads.
	bind := "close"
	if gpus > 1 {
		bind = "false"
	}
	return []v1.EnvVar{
		{Name: "OMP_NUM_THREADS", Value: strconv.Itoa(max(1, cpus/max(1, gpus)))},
		{Name: "OMP_PLACES", Value: "cores"},
		{Name: "OMP_PROC_BIND", Value: bind},
	}
}
