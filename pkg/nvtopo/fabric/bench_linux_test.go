// SPDX-License-Identifier: Apache-2.0

package fabric

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"syscall"
	"testing"
	"unsafe"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

// BenchmarkPlace measures one plan. Each iteration plans on another state of the cluster, in which about
// the given share of GPUs is used; "p99-ns" is the time of the slowest plan of a hundred.
func BenchmarkPlace(b *testing.B) {
	fabrics := map[string]struct {
		spines, racks, nodes int // racks a spine, nodes a rack
		uneven               bool
	}{
		"5000 nodes in 50 racks":  {4, 13, 100, true},
		"5000 nodes in 625 racks": {20, 32, 8, true},
		"Lingjun":                 {3, 40, 8, true},
	}
	for _, machine := range []string{"dgx-h100", "dgx1-v100"} {
		tb := tables(b, machine)
		for _, name := range []string{"5000 nodes in 50 racks", "5000 nodes in 625 racks", "Lingjun"} {
			f := fabrics[name]
			tr := benchTree(b, f.spines, f.racks, f.nodes)
			for _, load := range []float64{0, 0.5, 0.9} {
				states := benchStates(tb, tr.Len(), load)
				for _, pods := range []int{4, 64, 1000} {
					for _, gpus := range []int{8, 2, 1} {
						b.Run(fmt.Sprintf("%s/%s/load %v/%dx%d", machine, name, load, pods, gpus), func(b *testing.B) {
							benchPlace(b, tr, tb, states, pods, gpus)
						})
					}
				}
			}
		}
	}
}

// BenchmarkPlaceSegments is BenchmarkPlace for required segments of the middle one of three levels,
// whose racks are not known before the search.
func BenchmarkPlaceSegments(b *testing.B) {
	s := &Spec{Levels: []Level{{Name: "zone"}, {Name: "spine"}, {Name: "rack"}}}
	for n := range 6 * 6 * 16 * 8 {
		path := []string{fmt.Sprint("z", n/768), fmt.Sprint("s", n/128%6), fmt.Sprint("r", n/8%16)}
		s.Nodes = append(s.Nodes, NodePath{Node: fmt.Sprint("n", n), Path: path})
	}
	tr, _, err := NewTree(s)
	if err != nil {
		b.Fatal(err)
	}
	tb, slotter := tables(b, "dgx-h100"), NewSlotCounter()
	for _, load := range []float64{0.5, 0.9} {
		for _, pods := range []int{128, 512} {
			b.Run(fmt.Sprintf("load %v/%dx8", load, pods), func(b *testing.B) {
				r := rand.New(rand.NewPCG(7, 7))
				requests := make([]*Request, 20)
				for i := range requests {
					shape := Shape{GPUs: 8, Nodes: make([]Supply, tr.Len())}
					for n := range shape.Nodes {
						if r.Float64() >= load {
							shape.Nodes[n].Slots = slotter.Slots(&Machine{Tables: tb, Healthy: 0xff, Free: 0xff}, 8, nvtopo.Constraint{})
						}
					}
					requests[i] = &Request{Shapes: []Shape{shape}, Members: make([]Member, pods), SegmentSize: 8, SegmentRequired: true, SegmentLevel: "spine"}
				}
				benchPlans(b, tr, requests)
			})
		}
	}
}

// BenchmarkPlacePreferred is BenchmarkPlace where every tenth node is preferred.
func BenchmarkPlacePreferred(b *testing.B) {
	tb := tables(b, "dgx-h100")
	tr := benchTree(b, 4, 13, 100)
	states := benchStates(tb, tr.Len(), 0.9)
	for _, pods := range []int{4, 64, 1000} {
		b.Run(fmt.Sprintf("%dx1", pods), func(b *testing.B) {
			benchRequests(b, tr, tb, states, pods, 1, func(n int) int64 { return int64(n % 10 / 9) })
		})
	}
}

// BenchmarkPlaceMixed is BenchmarkPlace for workers of 8 GPUs and a launcher without any.
func BenchmarkPlaceMixed(b *testing.B) {
	tb := tables(b, "dgx-h100")
	tr := benchTree(b, 20, 32, 8)
	for _, load := range []float64{0, 0.5, 0.9} {
		states := benchStates(tb, tr.Len(), load)
		for _, pods := range []int{4, 64, 1000} {
			b.Run(fmt.Sprintf("load %v/1+%d", load, pods), func(b *testing.B) {
				slotter := NewSlotCounter()
				requests := make([]*Request, len(states))
				for i, free := range states {
					supply := func(shape, n int, used nvtopo.Mask, placed []int) Supply {
						if shape == 1 {
							return Supply{Slots: Unlinked(100), Limit: AtMost(1 - placed[1])}
						}
						return Supply{Slots: slotter.Slots(&Machine{Tables: tb, Healthy: 0xff, Free: free[n] &^ used}, 8, nvtopo.Constraint{})}
					}
					workers, launchers := Shape{GPUs: 8, Nodes: make([]Supply, len(free))}, Shape{Nodes: make([]Supply, len(free))}
					for n := range free {
						workers.Nodes[n], launchers.Nodes[n] = supply(0, n, 0, []int{0, 0}), supply(1, n, 0, []int{0, 0})
					}
					members := append(make([]Member, pods), Member{Shape: 1})
					requests[i] = &Request{Shapes: []Shape{workers, launchers}, Members: members, Remaining: supply}
				}
				benchPlans(b, tr, requests)
			})
		}
	}
}

// BenchmarkPlaceModels is BenchmarkPlace for members of one model, in clusters of one and of four. The
// models are those of neighbouring nodes in turn, and their machines alike. "Only" is the cluster of
// four of which members may have one, each in turn: a quarter of the nodes is another search than all.
func BenchmarkPlaceModels(b *testing.B) {
	tr := benchTree(b, 4, 13, 100)
	for _, models := range []int{1, 4} {
		var kinds []*nvtopo.Tables
		for m := range models {
			g := tables(b, "dgx-h100").Graph()
			for i := range g.GPUs {
				g.GPUs[i].Model = fmt.Sprint("model ", m)
			}
			kinds = append(kinds, nvtopo.NewTables(g, nvtopo.DefaultWeights()))
		}
		for _, load := range []float64{0, 0.5, 0.9} {
			states := benchStates(kinds[0], tr.Len(), load)
			for _, pods := range []int{4, 64, 1000} {
				for name, only := range map[string]bool{"any": false, "only": true} {
					b.Run(fmt.Sprintf("%d models/load %v/%dx8/%s", models, load, pods, name), func(b *testing.B) {
						slotter := NewSlotCounter()
						requests := make([]*Request, len(states))
						for i, free := range states {
							shape := Shape{GPUs: 8, Kind: 1, Nodes: make([]Supply, len(free))}
							for n, f := range free {
								if !only || n%models == i%models {
									shape.Nodes[n].Slots = slotter.Slots(&Machine{Tables: kinds[n%models], Healthy: 0xff, Free: f}, 8, nvtopo.Constraint{})
								}
							}
							requests[i] = &Request{Shapes: []Shape{shape}, Members: make([]Member, pods)}
						}
						benchPlans(b, tr, requests)
					})
				}
			}
		}
	}
}

func benchTree(b *testing.B, spines, racks, nodes int) *Tree {
	b.Helper()
	s := &Spec{Levels: []Level{{Name: "spine"}, {Name: "rack"}}}
	r := rand.New(rand.NewPCG(5, 5))
	for sp := range spines {
		for rk := range racks {
			// Real racks are uneven: some nodes are missing.
			for n := range nodes - r.IntN(1+nodes/6) {
				s.Nodes = append(s.Nodes, NodePath{Node: fmt.Sprintf("n-%d-%d-%d", sp, rk, n), Path: []string{fmt.Sprint("s", sp), fmt.Sprint("r", rk)}})
			}
		}
	}
	t, _, err := NewTree(s)
	if err != nil {
		b.Fatal(err)
	}
	return t
}

// benchStates makes states in which jobs of 1, 2, 4 and 8 GPUs have taken their share.
func benchStates(tb *nvtopo.Tables, nodes int, load float64) (states [][]nvtopo.Mask) {
	r := rand.New(rand.NewPCG(6, 6))
	for range 20 {
		free := make([]nvtopo.Mask, nodes)
		for n := range free {
			free[n] = 0xff
			for r.Float64() < load && free[n] != 0 {
				k := 1 << r.IntN(4)
				if load > 0.8 && r.IntN(2) == 0 {
					k = 8
				}
				if set, ok := tb.Pick(free[n], free[n], min(k, free[n].Len()), nvtopo.Constraint{}); ok {
					free[n] &^= set
				}
			}
		}
		states = append(states, free)
	}
	return states
}

func benchPlace(b *testing.B, tr *Tree, tb *nvtopo.Tables, states [][]nvtopo.Mask, pods, gpus int) {
	b.Helper()
	benchRequests(b, tr, tb, states, pods, gpus, func(int) int64 { return 0 })
}

func benchRequests(b *testing.B, tr *Tree, tb *nvtopo.Tables, states [][]nvtopo.Mask, pods, gpus int, like func(node int) int64) {
	b.Helper()
	slotter := NewSlotCounter()
	requests := make([]*Request, len(states))
	for i, free := range states {
		shape := Shape{GPUs: gpus, Nodes: make([]Supply, len(free))}
		for n, f := range free {
			shape.Nodes[n].Preference = like(n)
			shape.Nodes[n].Slots = slotter.Slots(&Machine{Tables: tb, Healthy: 0xff, Free: f}, gpus, nvtopo.Constraint{})
		}
		requests[i] = &Request{Shapes: []Shape{shape}, Members: make([]Member, pods)}
	}
	benchPlans(b, tr, requests)
}

func benchPlans(b *testing.B, tr *Tree, requests []*Request) {
	b.Helper()
	b.ReportAllocs()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var times []int64
	var sum int64
	exact, placed, i := 0, 0, 0
	for b.Loop() {
		start := threadTime(b)
		p, err := Place(tr, requests[i%len(requests)])
		times = append(times, threadTime(b)-start)
		i++
		if err == nil {
			placed++
			if p.Exact {
				exact++
			}
		}
	}
	slices.Sort(times)
	for _, t := range times {
		sum += t
	}
	b.ReportMetric(float64(sum)/float64(len(times)), "cpu-ns/op")
	b.ReportMetric(float64(times[len(times)*99/100]), "p99-cpu-ns")
	b.ReportMetric(100*float64(placed)/float64(i), "placed-%")
	b.ReportMetric(100*float64(exact)/float64(max(1, placed)), "exact-%")
}

// threadTime is the time that the thread has run, in ns. Getrusage knows it to a tick of the
// kernel only, which is longer than most plans take.
func threadTime(b *testing.B) int64 {
	b.Helper()
	const threadCPU = 3 // CLOCK_THREAD_CPUTIME_ID
	var ts syscall.Timespec
	if _, _, errno := syscall.Syscall(syscall.SYS_CLOCK_GETTIME, threadCPU, uintptr(unsafe.Pointer(&ts)), 0); errno != 0 {
		b.Fatal(errno)
	}
	return ts.Nano()
}

// BenchmarkSlots measures reading the slots of 5000 nodes once the states are known.
func BenchmarkSlots(b *testing.B) {
	tb := tables(b, "dgx-h100")
	free := benchStates(tb, 5000, 0.5)[0]
	slotter := NewSlotCounter()
	b.ReportAllocs()
	for b.Loop() {
		for _, f := range free {
			slotter.Slots(&Machine{Tables: tb, Healthy: 0xff, Free: f}, 2, nvtopo.Constraint{})
		}
	}
}
