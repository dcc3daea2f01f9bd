// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

// noLink stands in a row between GPUs of two resources.
const noLink = "-"

// Pairs is how many pairs of GPUs the links are of, in whichever form.
func (s *NodeGPUTopologySpec) Pairs() int {
	if len(s.LinkRows) == 0 {
		return len(s.Links)
	}
	return len(s.GPUs) * (len(s.GPUs) - 1) / 2
}

// Compact says the same in fewer bytes, with fields that readers of level 1 do not know:
// linkKinds and linkRows for links, threadsPerCore for siblings. What they cannot say
// stays as it is.
func (s *NodeGPUTopologySpec) Compact() {
	s.compactLinks()
	s.compactSiblings()
}

func (s *NodeGPUTopologySpec) compactSiblings() {
	for i := range s.NUMANodes {
		n := &s.NUMANodes[i]
		if threads := evenThreads(n); threads > 0 {
			n.Siblings, n.ThreadsPerCore = nil, threads
		}
	}
}

// Expand is the reverse of Compact. What it cannot read stays as it is.
func (s *NodeGPUTopologySpec) Expand() {
	s.expandLinks()
	for i := range s.NUMANodes {
		n := &s.NUMANodes[i]
		cpus, err := nvtopo.ParseCPUList(n.CPUs)
		if cores := coresOf(cpus, n.ThreadsPerCore); err == nil && len(cores) > 0 {
			n.Siblings, n.ThreadsPerCore = nil, 0
			for _, core := range cores {
				n.Siblings = append(n.Siblings, core.String())
			}
		}
	}
}

// evenThreads returns the threadsPerCore that says the siblings of a node, or 0.
func evenThreads(n *NUMANode) int32 {
	cpus, err := nvtopo.ParseCPUList(n.CPUs)
	if err != nil || len(n.Siblings) == 0 || len(cpus)%len(n.Siblings) != 0 || len(cpus)/len(n.Siblings) > maxThreads {
		return 0
	}
	threads := int32(len(cpus) / len(n.Siblings))
	for i, core := range coresOf(cpus, threads) {
		if core.String() != n.Siblings[i] {
			return 0
		}
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

// compactLinks does nothing where a pair of one resource has no link or several, where
// one of two has any, and where there are more kinds than are read.
func (s *NodeGPUTopologySpec) compactLinks() {
	at := map[[2]int32]*Link{}
	for i := range s.Links {
		at[[2]int32{s.Links[i].A, s.Links[i].B}] = &s.Links[i]
	}
	if len(s.GPUs) < 2 || len(s.Links) == 0 || len(at) != len(s.Links) {
		return
	}
	kinds, rows, linked := linkKinds{names: map[string]bool{}}, []string(nil), 0
	for i := range s.GPUs[:len(s.GPUs)-1] {
		row := make([]string, 0, len(s.GPUs))
		for j := i + 1; j < len(s.GPUs); j++ {
			a, b := s.GPUs[i].Index, s.GPUs[j].Index
			l := at[[2]int32{min(a, b), max(a, b)}]
			switch same := resourceOf(&s.GPUs[i]) == resourceOf(&s.GPUs[j]); {
			case same && l != nil:
				linked++
				row = append(row, kinds.nameOf(l))
			case !same && l == nil:
				row = append(row, noLink)
			default:
				return
			}
		}
		rows = append(rows, strings.Join(row, " "))
	}
	if linked == len(s.Links) && len(kinds.list) <= MaxLinkKinds {
		s.Links, s.LinkKinds, s.LinkRows = []Link{}, kinds.list, rows
	}
}

// linkKinds names the different paths of a machine.
type linkKinds struct {
	list  []LinkKind
	names map[string]bool
}

func (k *linkKinds) nameOf(l *Link) string {
	kind := LinkKind{Class: l.Class, Lanes: l.Lanes, Bandwidth: l.Bandwidth, LatencyNanoseconds: l.LatencyNanoseconds, PCIe: l.PCIe, Switched: l.Switched}
	for i := range k.list {
		kind.Name = k.list[i].Name
		if same := &k.list[i]; same.Bandwidth.Equal(kind.Bandwidth) && same.Lanes == kind.Lanes && same.Class == kind.Class &&
			same.PCIe == kind.PCIe && same.LatencyNanoseconds == kind.LatencyNanoseconds && same.Switched == kind.Switched {
			return kind.Name
		}
	}
	name := l.Class
	if class, err := readClass(l); err == nil {
		name = class.String() // NV2: as people know it
	}
	if l.PCIe != "" && l.PCIe != name {
		name += "/" + l.PCIe
	}
	kind.Name = name
	for n := 2; k.names[kind.Name]; n++ { // of another bandwidth, say
		kind.Name = fmt.Sprintf("%s.%d", name, n)
	}
	k.names[kind.Name] = true
	k.list = append(k.list, kind)
	return kind.Name
}

func (s *NodeGPUTopologySpec) expandLinks() {
	kinds := map[string]*LinkKind{}
	for i := range s.LinkKinds {
		kinds[s.LinkKinds[i].Name] = &s.LinkKinds[i]
	}
	links := []Link{}
	for i, row := range s.LinkRows {
		for j, name := range strings.Fields(row) {
			k, other := kinds[name], i+1+j
			if other >= len(s.GPUs) || k == nil && name != noLink {
				return
			}
			if a, b := s.GPUs[i].Index, s.GPUs[other].Index; k != nil {
				links = append(links, k.link(min(a, b), max(a, b)))
			}
		}
	}
	if len(s.LinkRows) > 0 {
		s.Links, s.LinkKinds, s.LinkRows = links, nil, nil
	}
}

func (k *LinkKind) link(a, b int32) Link {
	return Link{
		A: a, B: b, Class: k.Class, Lanes: k.Lanes, Bandwidth: k.Bandwidth, LatencyNanoseconds: k.LatencyNanoseconds, PCIe: k.PCIe, Switched: k.Switched,
	}
}

// readRows reads the short form of the links. Every pair of one resource has a path,
// since a row has as many words as there are GPUs after its own.
func (r *reader) readRows(out map[string]map[[2]int]nvtopo.Link) error {
	base := field.NewPath("spec", "linkRows")
	if len(r.spec.Links) > 0 {
		return fieldError(base, "links say the same, and one of the two must be empty")
	}
	if len(r.spec.LinkRows) != len(r.spec.GPUs)-1 {
		return fieldError(base, "%d rows for %d gpus, want one for each but the last", len(r.spec.LinkRows), len(r.spec.GPUs))
	}
	kinds, err := r.readKinds()
	if err != nil {
		return err
	}
	for i, row := range r.spec.LinkRows {
		path, j := base.Index(i), i+1
		for name := range strings.FieldsSeq(row) {
			if j >= len(r.spec.GPUs) {
				return fieldError(path, "more than the %d paths to the GPUs after it", len(r.spec.GPUs)-1-i)
			}
			res := resourceOf(&r.spec.GPUs[i])
			link, known := kinds[name]
			switch sameResource := resourceOf(&r.spec.GPUs[j]) == res; {
			case sameResource && !known:
				return fieldError(path, "%.64q is none of linkKinds", name)
			case !sameResource && name != noLink:
				return fieldError(path, "GPUs %d and %d are of different resources, which have %q between them", r.spec.GPUs[i].Index, r.spec.GPUs[j].Index, noLink)
			case sameResource:
				a, b := r.position[i], r.position[j]
				out[res][[2]int{min(a, b), max(a, b)}] = link
			}
			j++
		}
		if j != len(r.spec.GPUs) {
			return fieldError(path, "%d paths for the %d GPUs after it", j-i-1, len(r.spec.GPUs)-1-i)
		}
	}
	return nil
}

func (r *reader) readKinds() (map[string]nvtopo.Link, error) {
	base := field.NewPath("spec", "linkKinds")
	kinds := make(map[string]nvtopo.Link, len(r.spec.LinkKinds))
	for i := range r.spec.LinkKinds {
		k, path := &r.spec.LinkKinds[i], base.Index(i)
		if _, dup := kinds[k.Name]; dup || k.Name == "" || k.Name == noLink {
			return nil, fieldError(path.Child("name"), "%.64q is no name, or there twice", k.Name)
		}
		l := k.link(0, 0)
		link, err := readLink(&l, path)
		if err != nil {
			return nil, err
		}
		kinds[k.Name] = link
	}
	return kinds, nil
}
