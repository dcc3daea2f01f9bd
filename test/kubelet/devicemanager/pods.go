// SPDX-License-Identifier: Apache-2.0

package devicemanager

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kubernetes/pkg/kubelet/lifecycle"
)

// phase is the progress of a pod of kubelet's pod manager.
type phase int

const (
	pending  phase = iota // not admitted yet, or being admitted: active
	admitted              // active
	inactive              // refused, or all its containers ended
)

// Refusal is the reason why kubelet failed a pod at admission, as in the pod's status.
type Refusal struct {
	Reason  string
	Message string
}

// Error returns reason and message.
func (r *Refusal) Error() string { return r.Reason + ": " + r.Message }

// Admit handles a new pod as kubelet does and returns the refusal, if any. Concurrent calls are admitted
// one after the other.
func (m *Manager) Admit(pod *v1.Pod) *Refusal {
	m.admission.Lock()
	defer m.admission.Unlock()
	m.ready()
	return m.admit(pod)
}

// AdmitAll admits a burst in the order kubelet uses for one batch, by creation
// time, and returns the refusals.
func (m *Manager) AdmitAll(pods ...*v1.Pod) map[types.UID]*Refusal {
	out := map[types.UID]*Refusal{}
	for _, p := range byCreation(pods) {
		if r := m.Admit(p); r != nil {
			out[p.UID] = r
		}
	}
	return out
}

// admit needs the admission mutex. The pod is known, and active, before any handler runs, and inactive as
// soon as one refuses it.
func (m *Manager) admit(pod *v1.Pod) *Refusal {
	m.mu.Lock()
	topology := m.process.topology
	m.phases[pod.UID] = pending
	m.mu.Unlock()
	m.pods.AddPod(pod)

	var refusal *Refusal
	if result := topology.Admit(&lifecycle.PodAdmitAttributes{Pod: pod, OtherPods: m.activePods()}); !result.Admit {
		refusal = &Refusal{Reason: result.Reason, Message: result.Message}
	} else if m.options.Late != nil {
		if err := m.options.Late(pod); err != nil {
			refusal = &Refusal{Reason: "Late", Message: err.Error()}
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case refusal != nil:
		m.phases[pod.UID] = inactive
	case m.phases[pod.UID] == pending: // else it ended or was removed meanwhile
		m.phases[pod.UID] = admitted
	}
	return refusal
}

// Update gives kubelet a newer object of a pod, such as one being deleted. A pod
// that kubelet did not know becomes known without being admitted.
func (m *Manager) Update(pod *v1.Pod) { m.pods.UpdatePod(pod) }

// Terminate makes a pod inactive, as when all its containers have ended: kubelet still knows it, and
// frees its devices at its next update.
func (m *Manager) Terminate(pod *v1.Pod) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.phases[pod.UID] = inactive
}

// Remove removes a pod from kubelet's pod manager, as when its object is gone.
func (m *Manager) Remove(pod *v1.Pod) {
	m.pods.RemovePod(pod)
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.phases, pod.UID)
}

// Live returns the admitted pods that have not ended, oldest first.
func (m *Manager) Live() []*v1.Pod {
	return byCreation(slices.DeleteFunc(m.pods.GetPods(), func(p *v1.Pod) bool { return m.phase(p) != admitted }))
}

// activePods is kubelet's GetActivePods.
func (m *Manager) activePods() []*v1.Pod {
	return slices.DeleteFunc(m.pods.GetPods(), func(p *v1.Pod) bool { return m.phase(p) == inactive })
}

func (m *Manager) phase(pod *v1.Pod) phase {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.phases[pod.UID]
}

// forget drops the state that a new kubelet process lacks and returns the pods that it will get from the
// API server.
func (m *Manager) forget(gone func(*v1.Pod) bool) []*v1.Pod {
	again := m.Live()
	if gone != nil {
		again = slices.DeleteFunc(again, gone)
	}
	m.pods.SetPods(nil)
	m.mu.Lock()
	defer m.mu.Unlock()
	clear(m.phases)
	return again
}

func byCreation(pods []*v1.Pod) []*v1.Pod {
	sorted := slices.Clone(pods)
	slices.SortStableFunc(sorted, func(a, b *v1.Pod) int { return a.CreationTimestamp.Compare(b.CreationTimestamp.Time) })
	return sorted
}

// runningContainers returns the containers that run once a pod is up: init containers have ended unless
// they are sidecars.
func runningContainers(pod *v1.Pod) []string {
	var out []string
	for i := range pod.Spec.InitContainers {
		if c := &pod.Spec.InitContainers[i]; c.RestartPolicy != nil && *c.RestartPolicy == v1.ContainerRestartPolicyAlways {
			out = append(out, c.Name)
		}
	}
	for i := range pod.Spec.Containers {
		out = append(out, pod.Spec.Containers[i].Name)
	}
	return out
}

func findContainer(pod *v1.Pod, name string) *v1.Container {
	for _, list := range [][]v1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			if list[i].Name == name {
				return &list[i]
			}
		}
	}
	return nil
}
