// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/nvtopo/nvtopo/internal/fieldpath"
	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/machine"
)

// maxNodes bounds a cluster.
const maxNodes = 100_000

var (
	// objectField matches the line that every Kubernetes object in YAML has and no
	// list of machines.
	objectField = regexp.MustCompile(`(?m)^(apiVersion|kind|metadata|items|spec):`)
	// document matches the separator of YAML documents.
	document = regexp.MustCompile(`(?m)^---\s*$`)
)

// ReadNodes reads a nodes file: lines of a machine of the catalogue and a count,
// with blank lines and comments from # to the end of the line; or a
// NodeGPUTopologyList, a List or one NodeGPUTopology in YAML or JSON. Of an object
// with several resources the default one counts, and allocations do not: a replay
// starts with an empty cluster.
func ReadNodes(data []byte) ([]Node, error) {
	asJSON := bytes.HasPrefix(bytes.TrimSpace(data), []byte("{"))
	if !asJSON && !objectField.Match(data) {
		return readMachines(data)
	}
	if !asJSON {
		if n := documents(data); n > 1 {
			return nil, fmt.Errorf("%d YAML documents, want one list", n)
		}
		var err error
		if data, err = yaml.YAMLToJSONStrict(data); err != nil {
			return nil, fmt.Errorf("not YAML: %w", err)
		}
	}
	return readObjects(data)
}

// documents counts the YAML documents that are not empty.
func documents(data []byte) int {
	n := 0
	for _, d := range document.Split(string(data), -1) {
		if objectField.MatchString(d) {
			n++
		}
	}
	return n
}

func readMachines(data []byte) ([]Node, error) {
	var out []Node
	graphs := map[string]*nvtopo.Graph{}
	lines := bufio.NewScanner(bytes.NewReader(data))
	n := 0
	for lines.Scan() {
		n++
		text, _, _ := strings.Cut(lines.Text(), "#")
		fields := strings.Fields(text)
		if len(fields) == 0 {
			continue
		}
		name, count, err := machineLine(fields, maxNodes-len(out))
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		g := graphs[name]
		if g == nil {
			m, err := machine.Lookup(name)
			if err != nil {
				return nil, fmt.Errorf("line %d: %w", n, err)
			}
			if g, err = m.Graph(); err != nil {
				return nil, fmt.Errorf("line %d: %w", n, err)
			}
			graphs[name] = g
		}
		for range count {
			out = append(out, Node{Name: fmt.Sprintf("%s-%d", name, len(out)), Graph: g})
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("line %d: %w", n+1, err)
	}
	if len(out) == 0 {
		return nil, errors.New("no nodes; want lines of a machine and a count")
	}
	return out, nil
}

func machineLine(fields []string, room int) (name string, count int, err error) {
	if len(fields) != 2 {
		return "", 0, fmt.Errorf("%d words, want a machine and a count", len(fields))
	}
	count, err = strconv.Atoi(fields[1])
	switch {
	case err != nil || count < 1:
		return "", 0, fmt.Errorf("count %q, want a whole number from 1", fields[1])
	case count > room:
		return "", 0, fmt.Errorf("more than %d nodes", maxNodes)
	}
	return fields[0], count, nil
}

// readObjects reads JSON. Unknown fields are errors, since they are misspelt ones.
func readObjects(data []byte) ([]Node, error) {
	// The kind comes first: it decides which fields there are.
	var head struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
	}
	if err := json.Unmarshal(data, &head); err != nil {
		return nil, err
	}
	var list v1alpha1.NodeGPUTopologyList
	ours := head.APIVersion == v1alpha1.SchemeGroupVersion.String()
	switch {
	case ours && head.Kind == v1alpha1.Kind:
		list.Items = make([]v1alpha1.NodeGPUTopology, 1)
		if err := fieldpath.Decode(data, &list.Items[0]); err != nil {
			return nil, err
		}
	case ours && head.Kind == v1alpha1.Kind+"List", head.APIVersion == "v1" && head.Kind == "List":
		if err := fieldpath.Decode(data, &list); err != nil {
			return nil, err
		}
	default:
		return nil, fmt.Errorf("kind %q of apiVersion %q, want %sList of %s", head.Kind, head.APIVersion, v1alpha1.Kind, v1alpha1.SchemeGroupVersion)
	}
	if n := len(list.Items); n == 0 || n > maxNodes {
		return nil, fmt.Errorf("%d items, want 1 to %d", n, maxNodes)
	}
	out := make([]Node, 0, len(list.Items))
	for i := range list.Items {
		n, err := fromObject(&list.Items[i])
		if err != nil {
			return nil, fmt.Errorf("items[%d] (%q): %w", i, list.Items[i].Name, err)
		}
		out = append(out, n)
	}
	return out, nil
}

func fromObject(obj *v1alpha1.NodeGPUTopology) (Node, error) {
	// Items of a List have their own kind, those of a NodeGPUTopologyList need none.
	if obj.Kind != "" && obj.Kind != v1alpha1.Kind {
		return Node{}, fmt.Errorf("kind %q, want %s", obj.Kind, v1alpha1.Kind)
	}
	graphs, err := obj.Graphs()
	if err != nil {
		return Node{}, err
	}
	names := slices.Sorted(maps.Keys(graphs))
	if len(names) == 0 {
		return Node{}, errors.New("no GPUs")
	}
	g := graphs[v1alpha1.DefaultResource]
	if len(names) == 1 {
		g = graphs[names[0]]
	}
	if g == nil {
		return Node{}, fmt.Errorf("resources %s, none of them %s", strings.Join(names, ", "), v1alpha1.DefaultResource)
	}
	return Node{Name: cmp.Or(obj.Name, "node"), Graph: g}, nil
}
