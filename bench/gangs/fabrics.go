// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/nvtopo/nvtopo/internal/lab/sim"
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/fabric"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/machine"
)

// Levels of all fabrics.
const (
	levelSpine = "spine"
	levelRack  = "rack"
)

// Names of the clusters.
const (
	lingjunName = "lingjun"
	largeName   = "large"
)

// streamFabric is the seed of the fabrics' random parts.
const streamFabric = 1

// cluster is a fabric with its nodes, in the order in which a rule that takes the first node
// sees them: one that is independent of the racks.
type cluster struct {
	name, title string
	machine     string // or several
	tree        *fabric.Tree
	nodes       []sim.Node
}

// host is a node with its position, and its machine of the catalogue.
type host struct{ name, spine, rack, machine string }

// ofOneKind returns a cluster of equal machines, whose network is not measured.
func ofOneKind(name, title, machineName string, hosts []host) (*cluster, error) {
	for i := range hosts {
		hosts[i].machine = machineName
	}
	return newCluster(name, title, hosts, []fabric.Level{{Name: levelSpine}, {Name: levelRack}}, fabric.Link{})
}

// newCluster returns a cluster of hosts on spines and racks with these links.
func newCluster(name, title string, hosts []host, levels []fabric.Level, root fabric.Link) (*cluster, error) {
	graphs := map[string]*nvtopo.Graph{}
	c := &cluster{name: name, title: title}
	spec := &fabric.Spec{Levels: levels, Root: root}
	for _, h := range hosts {
		if graphs[h.machine] == nil {
			m, err := machine.Lookup(h.machine)
			if err != nil {
				return nil, err
			}
			if graphs[h.machine], err = m.Graph(); err != nil {
				return nil, err
			}
		}
		spec.Nodes = append(spec.Nodes, fabric.NodePath{Node: h.name, Path: []string{h.spine, h.rack}})
		c.nodes = append(c.nodes, sim.Node{Name: h.name, Graph: graphs[h.machine]})
	}
	c.machine = strings.Join(slices.Sorted(maps.Keys(graphs)), ", ")
	tree, faults, err := fabric.NewTree(spec)
	if err == nil && len(faults) > 0 {
		err = &faults[0]
	}
	if err != nil {
		return nil, fmt.Errorf("fabric %s: %w", name, err)
	}
	c.tree = tree
	return c, nil
}

// lingjunFile is the path of the hosts of Alibaba's Lingjun dataset in the directory of the
// fixtures.
var lingjunFile = filepath.Join("traces", "lingjun-topo.csv")

// lingjun returns the fabric of that dataset, or one of its shape.
func lingjun(fixtures string) (*cluster, error) {
	const title = "847 hosts, 119 racks of at most 8, 3 spines"
	if fixtures != "" {
		path := filepath.Join(fixtures, lingjunFile)
		hosts, err := readLingjun(path)
		if err == nil {
			return ofOneKind(lingjunName, "Lingjun, "+title, "dgx-h100", hosts)
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
	}
	return ofOneKind(lingjunName, "generated as Lingjun, "+title, "dgx-h100", likeLingjun())
}

// readLingjun reads hosts with their switches: the pod switches are the spines, the access
// switches the racks.
func readLingjun(path string) ([]host, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	rows, err := csv.NewReader(f).ReadAll()
	if err != nil {
		return nil, err
	}
	want := []string{"ip", "DSW", "PSW", "ASW"}
	if len(rows) < 2 || !slices.Equal(rows[0], want) {
		return nil, fmt.Errorf("want the columns %v and hosts", want)
	}
	var out []host
	for _, row := range rows[1:] {
		out = append(out, host{name: row[0], spine: row[2], rack: row[3]})
	}
	return out, nil
}

// likeLingjun returns hosts with as many racks of each size as Lingjun, and spines of about
// its sizes.
func likeLingjun() []host {
	var sizes []int
	for _, s := range []struct{ hosts, racks int }{{8, 68}, {7, 23}, {6, 15}, {5, 7}, {4, 2}, {3, 1}, {2, 3}} {
		sizes = append(sizes, slices.Repeat([]int{s.hosts}, s.racks)...)
	}
	rng := rand.New(rand.NewPCG(streamFabric, 1))
	rng.Shuffle(len(sizes), func(i, j int) { sizes[i], sizes[j] = sizes[j], sizes[i] })
	room := []int{362, 306, 179}
	spine := 0
	var racks []rack
	for i, n := range sizes {
		for spine < len(room)-1 && room[spine] < n {
			spine++
		}
		room[spine] -= n
		racks = append(racks, rack{spine, i, n})
	}
	return shuffled(racks)
}

type rack struct{ spine, number, hosts int }

// large returns 5000 nodes in 50 racks of 100 below 4 spines. Its machines have links that
// differ.
func large() (*cluster, error) {
	var racks []rack
	for i := range 50 {
		racks = append(racks, rack{i % 4, i, 100})
	}
	return ofOneKind(largeName, "5000 nodes, 50 racks of 100, 4 spines", "dgx1-v100", shuffled(racks))
}

// shuffled names the hosts of racks in an order that is independent of the racks.
func shuffled(racks []rack) []host {
	var out []host
	for _, r := range racks {
		for range r.hosts {
			out = append(out, host{spine: fmt.Sprint("spine-", r.spine), rack: fmt.Sprint("rack-", r.number)})
		}
	}
	rng := rand.New(rand.NewPCG(streamFabric, 2))
	rng.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	for i := range out {
		out[i].name = fmt.Sprint("node-", i)
	}
	return out
}
