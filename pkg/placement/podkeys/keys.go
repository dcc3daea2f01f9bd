// SPDX-License-Identifier: Apache-2.0

package podkeys

import (
	"slices"
	"strings"

	"github.com/nvtopo/nvtopo/pkg/placement/allocation"
	"github.com/nvtopo/nvtopo/pkg/placement/gangrequest"
	"github.com/nvtopo/nvtopo/pkg/placement/podrequest"
)

const (
	// Domain is the prefix of nvtopo's keys on pods.
	Domain = "nvtopo.dev/"
	// lookalike is the common prefix of Domain and of domains that are mistaken for it.
	lookalike = "nvtopo."
)

// Inputs lists the annotations under Domain that users may set on pods, in order.
func Inputs() []string {
	return ours(slices.Concat(podrequest.InputKeys(), gangrequest.InputKeys()))
}

// Annotations lists the annotations under Domain that pods have, in order: those of users, and those
// that the scheduler and Kueue write. A key that begins with OutputPrefix is one as well.
func Annotations() []string {
	return ours(slices.Concat(Inputs(), []string{podrequest.PromisedModelKey}, allocation.OutputKeys(), gangrequest.OutputKeys()))
}

// OutputPrefix is what the key of one container's GPUs begins with.
const OutputPrefix = allocation.GPUIDsKey + "."

// GangOnly lists the annotations that have an effect on members of gangs only, in order.
func GangOnly() []string {
	return slices.DeleteFunc(ours(gangrequest.InputKeys()), func(key string) bool {
		return key == gangrequest.GangKey || key == gangrequest.NearKey
	})
}

var annotations, inputs, gangOnly = Annotations(), Inputs(), GangOnly()

func ours(keys []string) []string {
	keys = slices.DeleteFunc(slices.Clone(keys), func(key string) bool { return !strings.HasPrefix(key, Domain) })
	slices.Sort(keys)
	return slices.Compact(keys)
}
