// SPDX-License-Identifier: Apache-2.0

package podfindertest

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/nvtopo/nvtopo/pkg/node/nodeagent/steering/podfinder"
	"github.com/nvtopo/nvtopo/pkg/node/nodeagent/steering/question"
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/machine"
)

// GPU is the resource of all questions.
const GPU = "nvidia.com/gpu"

// Epoch is the creation time of pod 0.
var Epoch = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// Pod builds a view. The number is its age: greater is younger and bound later.
func Pod(n int, containers ...podfinder.Container) *podfinder.Pod {
	name := fmt.Sprintf("p%d", n)
	return &podfinder.Pod{
		UID: types.UID("uid-" + name), Namespace: "ns", Name: name, Created: Epoch.Add(time.Duration(n) * time.Second),
		Version: uint64(100 + n), Containers: containers,
	}
}

// Asks returns an app container that requests n GPUs; chosen are the scheduler's.
func Asks(name string, n int, chosen ...string) podfinder.Container {
	c := podfinder.Container{Name: name, Limits: map[string]int{GPU: n}, Want: map[string][]string{}}
	if len(chosen) > 0 {
		c.Want[GPU] = question.Sorted(chosen)
	}
	return c
}

// InitAsks is Asks for a plain init container.
func InitAsks(name string, n int, chosen ...string) podfinder.Container {
	c := Asks(name, n, chosen...)
	c.Plain = true
	return c
}

// World holds the responses of kubelet and the API server.
type World struct {
	Kubelet map[string]map[string][]string // pod name -> container -> ids; a name that is missing is unknown
	Live    []*podfinder.Pod               // nil: as the watch
	Deaf    bool                           // kubelet answers nothing
}

// GPUs returns the ids of these devices.
func GPUs(ids ...int) []string {
	out := make([]string, len(ids))
	for i, id := range ids {
		out[i] = fmt.Sprintf("GPU-%d", id)
	}
	return out
}

// Surveyed is the entry for the request of all pods, among the pods queried.
const Surveyed = "all"

// Settle runs Resolve to its end, as steering does, and returns the pods queried in order.
func Settle(t *testing.T, f *podfinder.Facts, w World) (who *podfinder.Asker, asked []string, listed bool) {
	t.Helper()
	for range 1000 {
		v := podfinder.Resolve(f)
		switch {
		case v.Ask != nil:
			if _, again := f.Answers[v.Ask.UID]; again {
				t.Fatalf("asks for %s a second time", v.Ask.Name)
			}
			asked = append(asked, v.Ask.Name)
			holds, ok := w.Kubelet[v.Ask.Name]
			switch {
			case w.Deaf:
				f.Mute = true
			case ok:
				f.Answers[v.Ask.UID] = podfinder.Answer{Holds: holds}
			default:
				f.Answers[v.Ask.UID] = podfinder.Answer{Unknown: true}
			}
		case v.Survey:
			asked = append(asked, Surveyed)
			f.Active = map[types.NamespacedName]bool{}
			for name := range w.Kubelet {
				f.Active[types.NamespacedName{Namespace: "ns", Name: name}] = true
			}
			f.RuleOut()
		case v.List:
			if f.Listed {
				t.Fatal("lists twice")
			}
			f.Listed, listed = true, true
			if w.Live == nil {
				continue
			}
			for _, p := range w.Live {
				f.Fresh[p.UID] = !slices.ContainsFunc(f.Pods, func(o *podfinder.Pod) bool { return o.UID == p.UID })
			}
			f.Pods = w.Live
			f.RuleOut()
		default:
			return v.Who, asked, listed
		}
	}
	t.Fatal("comes to no end")
	return nil, nil, false
}

// Facts returns the facts of a question with these pods on the node, and no others.
func Facts(q question.Question, pods ...*podfinder.Pod) *podfinder.Facts {
	return &podfinder.Facts{
		Question: q, Now: Epoch.Add(time.Hour), Pods: pods, Fresh: map[types.UID]bool{}, Served: map[types.UID]map[string]podfinder.Served{},
		Recorded: podfinder.ByPod{}, Answers: map[types.UID]podfinder.Answer{}, Claimed: map[podfinder.ContainerRef]bool{},
	}
}

// Wanting returns a question for n of the eight GPUs of the node.
func Wanting(n int) question.Question { return question.New(GPU, GPUs(0, 1, 2, 3, 4, 5, 6, 7), nil, n) }

// Without returns the question with these ids not on offer.
func Without(q question.Question, ids ...string) question.Question {
	return question.New(q.Resource, q.Offered.Without(question.SetOf(ids)).Sorted(), q.Must, q.Size)
}

// Including returns the question with ids that must be taken.
func Including(q question.Question, must ...string) question.Question {
	return question.New(q.Resource, q.Offered.Sorted(), must, q.Size)
}

// RecordedAs records ids in kubelet's checkpoint for a container of pod n, served an hour ago.
func RecordedAs(n int, container string, ids ...string) func(*podfinder.Facts) {
	return func(f *podfinder.Facts) {
		uid := types.UID(fmt.Sprintf("uid-p%d", n))
		if f.Recorded[uid] == nil {
			f.Recorded[uid] = map[string][]string{}
		}
		f.Recorded[uid][container] = ids
		ServedAs(n, container, time.Hour, ids...)(f)
	}
}

// ServedAs records that ids were served to a container of pod n some time ago.
func ServedAs(n int, container string, ago time.Duration, ids ...string) func(*podfinder.Facts) {
	return func(f *podfinder.Facts) {
		uid := types.UID(fmt.Sprintf("uid-p%d", n))
		if f.Served[uid] == nil {
			f.Served[uid] = map[string]podfinder.Served{}
		}
		f.Served[uid][container] = podfinder.Served{IDs: ids, At: f.Now.Add(-ago)}
	}
}

// Tables returns the tables of a DGX with GPUs GPU-0 to GPU-7.
func Tables(tb testing.TB) *nvtopo.Tables {
	tb.Helper()
	m, err := machine.Lookup("dgx-a100")
	if err != nil {
		tb.Fatal(err)
	}
	g, err := m.GraphFor("node-a")
	if err != nil {
		tb.Fatal(err)
	}
	for i := range g.GPUs {
		g.GPUs[i].UUID = fmt.Sprintf("GPU-%d", i)
	}
	return nvtopo.NewTables(g, nvtopo.DefaultWeights())
}
