// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

// noLink stands in a row between GPUs of two resources.
const noLink = "-"

// linkKinds names the different paths of a machine. The zero value is empty.
type linkKinds struct {
	list  []LinkKind
	names map[string]bool
}

// nameOf returns the name of a path, a new one if there is none of its kind. The name that
// the path has does not count.
func (k *linkKinds) nameOf(kind LinkKind) string {
	for i := range k.list {
		kind.Name = k.list[i].Name
		if same := &k.list[i]; same.Bandwidth.Equal(kind.Bandwidth) && same.Lanes == kind.Lanes && same.Class == kind.Class &&
			same.PCIe == kind.PCIe && same.LatencyNanoseconds == kind.LatencyNanoseconds && same.Switched == kind.Switched {
			return kind.Name
		}
	}
	name := kind.Class
	if class, err := readClass(&kind); err == nil {
		name = class.String() // NV2: as people know it
	}
	if kind.PCIe != "" && kind.PCIe != name {
		name += "/" + kind.PCIe
	}
	kind.Name = name
	for n := 2; k.names[kind.Name]; n++ { // of another bandwidth, say
		kind.Name = fmt.Sprintf("%s.%d", name, n)
	}
	if k.names == nil {
		k.names = map[string]bool{}
	}
	k.names[kind.Name] = true
	k.list = append(k.list, kind)
	return kind.Name
}

// fromLinks returns the kinds of a graph's links, and its rows.
func fromLinks(g *nvtopo.Graph) ([]LinkKind, []string) {
	var kinds linkKinds
	var rows []string
	for i := range g.Len() - 1 {
		var row []string
		for j := i + 1; j < g.Len(); j++ {
			row = append(row, kinds.nameOf(fromLink(g.Link(i, j))))
		}
		rows = append(rows, strings.Join(row, " "))
	}
	return kinds.list, rows
}

// fromLink returns the kind of a link, without a name.
func fromLink(l nvtopo.Link) LinkKind {
	class := l.Class.PCIe.String()
	switch l.Class.Kind {
	case nvtopo.KindNVLink:
		class = "NVLink"
	case nvtopo.KindXGMI:
		class = "XGMI"
	case nvtopo.KindHCCS:
		class = "HCCS"
	case nvtopo.KindPCIe, nvtopo.KindUnknown:
	}
	out := LinkKind{
		Class: class, Lanes: int32(l.Class.Lanes), Bandwidth: *resource.NewQuantity(l.Bandwidth*1000, resource.DecimalSI), Switched: l.Switched,
	}
	// What a reader assumes anyway is not written.
	usual := nvtopo.NewLink(l.Class, l.PCIe, 0, 0, l.Switched)
	if l.Latency != usual.Latency {
		out.LatencyNanoseconds = l.Latency
	}
	if l.Class.IsFabric() {
		out.PCIe = l.PCIe.String()
	}
	return out
}

// readLinks returns the links of each resource's GPUs by their positions. Every pair of one
// resource has a path, since a row has as many words as there are GPUs after its own.
func (r *reader) readLinks() (map[string]map[[2]int]nvtopo.Link, error) {
	out := map[string]map[[2]int]nvtopo.Link{}
	for res := range r.members {
		out[res] = map[[2]int]nvtopo.Link{}
	}
	base := field.NewPath("spec", "linkRows")
	if len(r.spec.LinkRows) != max(0, len(r.spec.GPUs)-1) {
		return nil, fieldError(base, "%d rows for %d gpus, want one for each but the last", len(r.spec.LinkRows), len(r.spec.GPUs))
	}
	kinds, err := r.readKinds()
	if err != nil {
		return nil, err
	}
	for i, row := range r.spec.LinkRows {
		path, j := base.Index(i), i+1
		for name := range strings.FieldsSeq(row) {
			if j >= len(r.spec.GPUs) {
				return nil, fieldError(path, "more than the %d paths to the GPUs after it", len(r.spec.GPUs)-1-i)
			}
			res := resourceOf(&r.spec.GPUs[i])
			link, known := kinds[name]
			switch sameResource := resourceOf(&r.spec.GPUs[j]) == res; {
			case sameResource && !known:
				return nil, fieldError(path, "%.64q is none of linkKinds", name)
			case !sameResource && name != noLink:
				return nil, fieldError(path, "GPUs %d and %d are of different resources, which have %q between them", r.spec.GPUs[i].Index, r.spec.GPUs[j].Index, noLink)
			case sameResource:
				a, b := r.position[i], r.position[j]
				out[res][[2]int{min(a, b), max(a, b)}] = link
			}
			j++
		}
		if j != len(r.spec.GPUs) {
			return nil, fieldError(path, "%d paths for the %d GPUs after it", j-i-1, len(r.spec.GPUs)-1-i)
		}
	}
	return out, nil
}

func (r *reader) readKinds() (map[string]nvtopo.Link, error) {
	base := field.NewPath("spec", "linkKinds")
	kinds := make(map[string]nvtopo.Link, len(r.spec.LinkKinds))
	for i := range r.spec.LinkKinds {
		k, path := &r.spec.LinkKinds[i], base.Index(i)
		if _, dup := kinds[k.Name]; dup || k.Name == "" || k.Name == noLink {
			return nil, fieldError(path.Child("name"), "%.64q is no name, or there twice", k.Name)
		}
		link, err := readLink(k, path)
		if err != nil {
			return nil, err
		}
		kinds[k.Name] = link
	}
	return kinds, nil
}

func readLink(l *LinkKind, path *field.Path) (nvtopo.Link, error) {
	class, err := readClass(l)
	if err != nil {
		return nvtopo.Link{}, fieldError(path.Child("class"), "%w", err)
	}
	level := class.PCIe
	if l.PCIe != "" {
		if level, err = nvtopo.ParsePCIeLevel(l.PCIe); err != nil {
			return nvtopo.Link{}, fieldError(path.Child("pcie"), "%w", err)
		}
	}
	if class.PCIe != nvtopo.PCIeUnknown && level != class.PCIe {
		return nvtopo.Link{}, fieldError(path.Child("pcie"), "%s contradicts class %s", level, class)
	}
	// Below 1 kB/s the link would vanish in the library's unit.
	bytes := l.Bandwidth.Value()
	if bytes < 1000 || bytes > maxBytesPerSecond {
		return nvtopo.Link{}, fieldError(path.Child("bandwidth"), "%s is not between 1k and 100T bytes per second", l.Bandwidth.String())
	}
	if l.LatencyNanoseconds < 0 {
		return nvtopo.Link{}, fieldError(path.Child("latencyNanoseconds"), "%d is negative", l.LatencyNanoseconds)
	}
	link := nvtopo.NewLink(class, level, 0, 0, l.Switched)
	link.Bandwidth = bytes / 1000
	if l.LatencyNanoseconds > 0 {
		link.Latency = l.LatencyNanoseconds
	}
	return link, nil
}

// fabricKind maps the class name of a fabric in the resource to the
// library's, and any other name to KindUnknown.
func fabricKind(class string) nvtopo.LinkKind {
	switch class {
	case "NVLink":
		return nvtopo.KindNVLink
	case "XGMI":
		return nvtopo.KindXGMI
	case "HCCS":
		return nvtopo.KindHCCS
	}
	return nvtopo.KindUnknown
}

func readClass(l *LinkKind) (nvtopo.Class, error) {
	if kind := fabricKind(l.Class); kind != nvtopo.KindUnknown {
		if l.Lanes < 1 || l.Lanes > 64 {
			return nvtopo.Class{}, fmt.Errorf("%s needs lanes between 1 and 64, not %d", l.Class, l.Lanes)
		}
		return nvtopo.Class{Kind: kind, Lanes: int(l.Lanes)}, nil
	}
	level, err := nvtopo.ParsePCIeLevel(l.Class)
	switch {
	case err != nil || l.Class == "SOC":
		return nvtopo.Class{}, fmt.Errorf("%q is none of NVLink, XGMI, HCCS, PIX, PXB, PHB, NODE, SYS", l.Class)
	case l.Lanes != 0:
		return nvtopo.Class{}, fmt.Errorf("%s is a PCIe path and has no lanes, not %d", l.Class, l.Lanes)
	}
	return nvtopo.Class{Kind: nvtopo.KindPCIe, PCIe: level}, nil
}
