// SPDX-License-Identifier: Apache-2.0

package steering

import (
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/nvtopo/nvtopo/pkg/node/nodeagent/steering/podfinder"
	"github.com/nvtopo/nvtopo/pkg/node/nodeagent/steering/question"
)

// shelf is the agent's memory of one resource. The mutex is never held during a call to kubelet, the API
// server or the inner plugin: kubelet may request for several pods at once, and each answer has only a
// second.
type shelf struct {
	resource string

	mu      sync.Mutex
	served  map[types.UID]*servedPod // guarded by mu, as all below
	grants  []grant                  // answers whose Allocate has not come
	pending []*pendingAllocation     // oldest first
	last    types.UID
	bound   bool               // order of recent pods, see podfinder.Facts
	gone    map[types.UID]bool // served, and unknown to kubelet when last queried
	ended   map[types.UID]bool // see Ended
	healthy map[string]bool    // id -> healthy, as sent to kubelet; nil before the first list
	dirty   bool               // served differs from the file
}

// servedPod holds the devices of one pod; its name is needed to query kubelet.
type servedPod struct {
	namespace, name string
	containers      map[string]podfinder.Served
}

// grant is an answer that kubelet has not acted on yet.
type grant struct {
	who *podfinder.Asker // nil if it was not found
	ids []string
	at  time.Time
}

// pendingAllocation is an Allocate that the inner plugin is working on.
type pendingAllocation struct {
	who  *podfinder.Asker
	ids  []string
	at   time.Time
	done chan struct{} // closed when the plugin has succeeded
}

func newShelf(resource string) *shelf {
	return &shelf{resource: resource, served: map[types.UID]*servedPod{}, gone: map[types.UID]bool{}, ended: map[types.UID]bool{}}
}

// servedCopy returns a copy of the served devices. It needs mu.
func (s *shelf) servedCopy() map[types.UID]map[string]podfinder.Served {
	out := make(map[types.UID]map[string]podfinder.Served, len(s.served))
	for uid, p := range s.served {
		out[uid] = maps.Clone(p.containers)
	}
	return out
}

// recall copies the shelf's memory into f. It needs mu.
func (s *shelf) recall(f *podfinder.Facts) {
	f.Served, f.Claimed, f.Last, f.ByBinding, f.Gone = s.servedCopy(), s.claims(f.Now), s.last, s.bound, maps.Clone(s.gone)
}

// settle removes and returns the first pending allocation of ids. It needs mu.
func (s *shelf) settle(ids []string) *pendingAllocation {
	i := slices.IndexFunc(s.pending, func(p *pendingAllocation) bool { return slices.Equal(p.ids, ids) })
	if i < 0 {
		return nil
	}
	p := s.pending[i]
	s.pending = slices.Delete(s.pending, i, i+1)
	return p
}

// claims returns the containers that are being answered or allocated, or were just now: kubelet does not
// request for them a second time. It needs mu.
func (s *shelf) claims(now time.Time) map[podfinder.ContainerRef]bool {
	out := map[podfinder.ContainerRef]bool{}
	for i := range s.grants {
		if g := &s.grants[i]; g.who != nil && now.Sub(g.at) < podfinder.SettleAge {
			out[g.who.Ref()] = true
		}
	}
	for _, p := range s.pending {
		if p.who != nil && now.Sub(p.at) < podfinder.SettleAge {
			out[p.who.Ref()] = true
		}
	}
	for uid, p := range s.served {
		for name, d := range p.containers {
			if now.Sub(d.At) < podfinder.SettleAge {
				out[podfinder.ContainerRef{UID: uid, Container: name}] = true
			}
		}
	}
	return out
}

// underway returns the physical ids that were answered for others and are not recorded yet. It needs mu.
func (s *shelf) underway(except *podfinder.Asker, now time.Time) question.Set {
	out := question.Set{}
	other := func(who *podfinder.Asker) bool { return who == nil || except == nil || who.Pod.UID != except.Pod.UID }
	for i := range s.grants {
		if g := &s.grants[i]; other(g.who) && now.Sub(g.at) < podfinder.SettleAge {
			out.Add(question.Physicals(g.ids))
		}
	}
	for _, p := range s.pending {
		if other(p.who) && now.Sub(p.at) < podfinder.SettleAge {
			out.Add(question.Physicals(p.ids))
		}
	}
	return out
}

// granted removes the answer with these ids, since kubelet now allocates them, and
// returns its container. It needs mu.
func (s *shelf) granted(ids []string, now time.Time) *podfinder.Asker {
	var who *podfinder.Asker
	s.grants = slices.DeleteFunc(s.grants, func(g grant) bool {
		if now.Sub(g.at) >= grantAge {
			return true
		}
		if slices.Equal(g.ids, ids) {
			who = g.who
			return true
		}
		return false
	})
	return who
}

// grant records an answer until its Allocate comes. Without ids the answer is still being computed. A
// container has at most one: it requests again only if its last answer led to nothing. It needs mu.
func (s *shelf) grant(who *podfinder.Asker, ids []string, now time.Time) {
	s.grants = slices.DeleteFunc(s.grants, func(g grant) bool {
		same := who != nil && g.who != nil && g.who.Ref() == who.Ref()
		return same || (len(ids) > 0 && slices.Equal(g.ids, ids)) || now.Sub(g.at) >= grantAge
	})
	s.grants = append(s.grants, grant{who: who, ids: ids, at: now})
	if who != nil {
		s.last = who.Pod.UID
	}
}

// serve records the devices given to a container. It needs mu.
func (s *shelf) serve(who *podfinder.Asker, ids []string, now time.Time) {
	p := s.served[who.Pod.UID]
	if p == nil {
		p = &servedPod{containers: map[string]podfinder.Served{}}
		s.served[who.Pod.UID] = p
	}
	p.namespace, p.name = who.Pod.Namespace, who.Pod.Name
	p.containers[who.Container.Name] = podfinder.Served{IDs: ids, At: now}
	s.last = who.Pod.UID
	s.dirty = true
}

// learn adopts kubelet's record, which is authoritative. It also has the devices served while another
// agent ran, and those served to pods that were not found. Devices attributed to a wrong pod are removed.
// It needs mu.
func (s *shelf) learn(recorded podfinder.ByPod, pods []*podfinder.Pod, now time.Time) {
	if recorded == nil {
		return
	}
	owner := map[string]podfinder.ContainerRef{} // recorded set -> who has it
	for uid, containers := range recorded {
		for name, ids := range containers {
			owner[question.Key(ids)] = podfinder.ContainerRef{UID: uid, Container: name}
			s.learnOne(podfinder.ContainerRef{UID: uid, Container: name}, ids, now)
		}
	}
	for _, v := range pods {
		if p := s.served[v.UID]; p != nil && p.name == "" {
			p.namespace, p.name = v.Namespace, v.Name
			s.dirty = true
		}
	}
	for uid, p := range s.served {
		for name, d := range p.containers {
			who, ok := owner[question.Key(d.IDs)]
			if ok && who.UID != uid && len(recorded[uid][name]) == 0 && now.Sub(d.At) >= podfinder.SettleAge {
				delete(p.containers, name)
				s.dirty = true
			}
		}
	}
}

func (s *shelf) learnOne(at podfinder.ContainerRef, ids []string, now time.Time) {
	p := s.served[at.UID]
	if p == nil {
		p = &servedPod{containers: map[string]podfinder.Served{}}
		s.served[at.UID] = p
	}
	d, ok := p.containers[at.Container]
	if ok && (slices.Equal(d.IDs, ids) || now.Sub(d.At) < podfinder.SettleAge) {
		return
	}
	p.containers[at.Container] = podfinder.Served{IDs: ids}
	s.dirty = true
}

// forget drops pods that are neither on the node nor recorded. It needs mu.
func (s *shelf) forget(recorded podfinder.ByPod, pods []*podfinder.Pod, now time.Time) {
	here := make(map[types.UID]bool, len(pods))
	for _, v := range pods {
		here[v.UID] = true
	}
	for uid, p := range s.served {
		young := false
		for _, d := range p.containers {
			young = young || now.Sub(d.At) < forgetAge
		}
		if !here[uid] && len(recorded[uid]) == 0 && !young {
			delete(s.served, uid)
			s.dirty = true
		}
	}
	for uid := range s.gone {
		if s.served[uid] == nil {
			delete(s.gone, uid)
		}
	}
	for uid := range s.ended {
		if s.served[uid] == nil {
			delete(s.ended, uid)
		}
	}
}

// learnActive records which of the served pods kubelet does not know. A rejected pod stays in the watch
// for a while without a record, and would otherwise be queried before all others.
func (s *shelf) learnActive(answers map[types.UID]podfinder.Answer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for uid, a := range answers {
		switch {
		case !a.Unknown:
			delete(s.gone, uid)
		case s.served[uid] != nil:
			s.gone[uid] = true
		}
	}
}

// learnOrder records the order in which pods come: the next one probably follows it too.
func (s *shelf) learnOrder(f *podfinder.Facts, who *podfinder.Asker) {
	if who == nil || who.Source != podfinder.SourceGet || who.Ambiguous {
		return
	}
	if bound, told := f.Order(who); told {
		s.mu.Lock()
		s.bound = bound
		s.mu.Unlock()
	}
}
