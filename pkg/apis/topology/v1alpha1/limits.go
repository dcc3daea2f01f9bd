// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

// Limits of what may be published, as the markers in types.go have them. Each request to an
// object has the API server judge all of it, so they are near to what real machines need (ADR
// 0015). Rules cost it 2 to 4 µs for each field that they read. So each list is gone through as
// few times as can be, and what is looked up in is a map within a list of its own, built once
// and not once a link. A rule of one list stands at that list: the API server does not judge a
// list again that has not changed, but judges a rule of spec whenever anything in spec has.
const (
	// MaxLinkKinds is of how many kinds links may be; machines of the catalogue have up to seven.
	MaxLinkKinds = 32
	// MaxSiblings bounds the entries of siblings of all NUMA nodes: eight sockets of 64 cores.
	MaxSiblings = 512
	// MaxDistances is up to how many NUMA nodes distances may be there: a tray of four
	// GB200 has 34, of which 32 are its GPUs' memory.
	MaxDistances = 36
	// MaxNICDistances bounds the distances of all adapters: 64 of 8 GPUs.
	MaxNICDistances = 512
	// MaxAllocations is the number of entries: two containers with a share of a GPU in each
	// of 250 pods, which is what large nodes are configured to; kubelet runs 110 by default.
	MaxAllocations = 512
	// MaxAllocatedGPUs bounds the GPUs of all entries: one for each, or 64 GPUs, each listed
	// eight times.
	MaxAllocatedGPUs = 512
	// MaxAllocatedCPUs bounds the characters of cpus of all entries.
	MaxAllocatedCPUs = 32768
	// MaxMemoryCells bounds the cells of all NUMA nodes in kubelet's account of memory, as
	// MaxDistances bounds their distances.
	MaxMemoryCells = 1296
	// MaxOption is how many characters the name or the value of an option of kubelet's
	// managers may have; kubelet's own have up to 32.
	MaxOption = 128
)

// Limits of what is read from an object. The schema has most of them too; here
// they hold for objects that were admitted by an older schema or by none, and for
// sums that a schema cannot state. A node writes its own object, and what it
// writes must cost the others nothing.
const (
	// maxBytesPerSecond bounds a link's bandwidth: 100 TB/s is far above any real
	// link, and sums over all pairs of 64 GPUs stay well inside an int64.
	maxBytesPerSecond = 100_000_000_000_000
	// maxNUMANodes is the width of a mask of them.
	maxNUMANodes = 64
	// maxResources is what a pod can be given devices of at once.
	maxResources = 8
	maxNICs      = 64
	// maxMemory bounds the memory of one NUMA node or GPU, so that sums of them stay
	// inside an int64: 4 PiB.
	maxMemory = 1 << 52
	// maxThreads bounds the hyper-threads of one core; real ones have up to 8.
	maxThreads = 64
	// maxListedCPUs bounds the numbers in all CPU lists of an object, equal lists
	// counted once: a list of 6 bytes can name 8192 CPUs.
	maxListedCPUs = 1 << 16
	maxDistance   = 255
	maxText       = 256 // bytes of an id, a model, a name
	maxSlices     = 8   // of a GPU: real ones have up to 7
)

// CPULists reads the CPU lists of one object. Equal texts share one set, and the
// sum of what is kept is bounded: beyond it no list is even looked at. The zero value
// is empty.
//
// +kubebuilder:object:generate=false
type CPULists struct {
	seen  map[string]nvtopo.CPUSet // text -> set
	total int
}

// Read returns the CPUs of a list in the kernel's format. The caller must not
// change the set.
func (l *CPULists) Read(text string) (nvtopo.CPUSet, error) {
	if text == "" {
		return nil, nil
	}
	if set, ok := l.seen[text]; ok {
		return set, nil
	}
	if l.total <= maxListedCPUs {
		set, err := nvtopo.ParseCPUList(text)
		if err != nil {
			return nil, err
		}
		if l.total += len(set); l.total <= maxListedCPUs {
			return l.keep(text, set), nil
		}
	}
	return nil, fmt.Errorf("the lists of CPUs up to this one have more than %d members", maxListedCPUs)
}

func (l *CPULists) keep(text string, set nvtopo.CPUSet) nvtopo.CPUSet {
	if l.seen == nil {
		l.seen = map[string]nvtopo.CPUSet{}
	}
	l.seen[text] = set
	return set
}

// MemoryOf reads an amount of memory that is not negative and can be summed up.
func MemoryOf(q *resource.Quantity) (int64, error) {
	if q == nil {
		return 0, nil
	}
	if q.Sign() < 0 {
		return 0, errors.New("is negative")
	}
	if q.CmpInt64(maxMemory) > 0 { // Value is 0 where the number does not fit
		return 0, errors.New("is more than 4Pi")
	}
	return q.Value(), nil
}

// checkSizes refuses an object with more entries than a machine can have before
// anything is computed of them.
func checkSizes(spec *NodeGPUTopologySpec) error {
	base := field.NewPath("spec")
	for _, list := range []struct {
		name     string
		len, max int
	}{
		{"gpus", len(spec.GPUs), nvtopo.MaxGPUs},
		{"numaNodes", len(spec.NUMANodes), maxNUMANodes},
		{"linkKinds", len(spec.LinkKinds), MaxLinkKinds},
		{"linkRows", len(spec.LinkRows), nvtopo.MaxGPUs - 1},
		{"nics", len(spec.NICs), maxNICs},
	} {
		if list.len > list.max {
			return fieldError(base.Child(list.name), "%d entries, at most %d are read", list.len, list.max)
		}
	}
	resources := map[string]bool{}
	for i := range spec.GPUs {
		d, path := &spec.GPUs[i], base.Child("gpus").Index(i)
		if len(d.ID) > maxText || len(d.Model) > maxText || len(d.Resource) > maxText {
			return fieldError(path, "a text of more than %d bytes", maxText)
		}
		if len(d.Slices) > maxSlices {
			return fieldError(path.Child("slices"), "%d entries, at most %d are read", len(d.Slices), maxSlices)
		}
		for j := range d.Slices {
			if s := &d.Slices[j]; len(s.ID) > maxText || len(s.Profile) > maxText {
				return fieldError(path.Child("slices").Index(j), "a text of more than %d bytes", maxText)
			}
		}
		if resources[resourceOf(d)] = true; len(resources) > maxResources {
			return fieldError(path.Child("resource"), "more than %d resources", maxResources)
		}
	}
	return nil
}
