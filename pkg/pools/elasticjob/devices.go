// SPDX-License-Identifier: Apache-2.0

package elasticjob

import (
	"fmt"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/pools/computepool"
	"github.com/nvtopo/nvtopo/pkg/pools/units"
)

// offer is the device resources that pods of a pool may request.
type offer struct {
	resources []v1.ResourceName
	slices    bool // MIG slices of any profile, in addition to resources
}

// offerOf returns the offer of a pool: parts of devices where the pool gives out parts.
func offerOf(pool *v1alpha1.ComputePool) offer {
	unit, sliced := units.Sliced(pool.Spec.Virtualization)
	switch {
	case !sliced:
		return offer{resources: computepool.Resources(pool)}
	case unit.Resource == units.MilliGPU:
		return offer{slices: true}
	}
	return offer{resources: []v1.ResourceName{v1.ResourceName(unit.Resource)}}
}

func (o *offer) has(name v1.ResourceName) bool {
	if slices.Contains(o.resources, name) {
		return true
	}
	_, slice := units.MilliOf(string(name))
	return o.slices && slice
}

// completeDevices makes a replica's pod request its devices, and returns the faults. The template must
// request exactly want devices; if it requests none, the first container gets them.
func completeDevices(spec *v1.PodSpec, want int64, o offer) []string {
	d := &deviceCount{offer: o, kinds: map[v1.ResourceName]bool{}}
	have := int64(0)
	for i := range spec.Containers {
		have += d.count(fmt.Sprintf("%s.spec.containers[%d].resources", templatePath, i), &spec.Containers[i].Resources)
	}
	for i := range spec.InitContainers {
		path := fmt.Sprintf("%s.spec.initContainers[%d].resources", templatePath, i)
		if n := d.count(path, &spec.InitContainers[i].Resources); n > want {
			d.fault("%s.limits: %d devices, more than spec.scaling.gpuPerReplica: %d", path, n, want)
		}
	}
	switch {
	case len(d.faults) > 0:
	case len(d.kinds) > 1:
		d.fault("%s.spec: devices of %d resources: want those of one", templatePath, len(d.kinds))
	case len(d.kinds) == 0 && len(o.resources) == 0:
		d.fault("%s.spec.containers: resources.limits names no slice, and the pool gives out nothing else", templatePath)
	case len(d.kinds) == 0:
		first := &spec.Containers[0].Resources
		if first.Limits == nil {
			first.Limits = v1.ResourceList{}
		}
		first.Limits[o.resources[0]] = *resource.NewQuantity(want, resource.DecimalSI)
	case have != want:
		d.fault("%s.spec.containers: resources.limits of %d devices, and spec.scaling.gpuPerReplica is %d", templatePath, have, want)
	}
	return d.faults
}

// deviceCount counts the devices of containers.
type deviceCount struct {
	offer  offer
	kinds  map[v1.ResourceName]bool // resources that some container requests
	faults []string
}

func (d *deviceCount) fault(format string, args ...any) {
	d.faults = append(d.faults, fmt.Sprintf(format, args...))
}

func (d *deviceCount) count(path string, r *v1.ResourceRequirements) (n int64) {
	for _, name := range slices.Sorted(maps.Keys(r.Requests)) {
		request := r.Requests[name]
		if limit, ok := r.Limits[name]; d.offer.has(name) && (!ok || request.Cmp(limit) != 0) {
			d.fault("%s.requests[%s]: want the same in limits", path, name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(r.Limits)) {
		limit := r.Limits[name]
		switch {
		case !d.offer.has(name) || limit.IsZero():
		case limit.Sign() < 0 || limit.Cmp(*resource.NewQuantity(limit.Value(), resource.DecimalSI)) != 0:
			d.fault("%s.limits[%s]: %s: want a whole number", path, name, limit.String())
		default:
			n += limit.Value()
			d.kinds[name] = true
		}
	}
	return n
}
