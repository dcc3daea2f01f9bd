// SPDX-License-Identifier: Apache-2.0

package gangrequest

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"

	"github.com/nvtopo/nvtopo/pkg/nvtopo/fabric"
)

// Labels by which controllers number their pods, beside the completion index of a Job.
const (
	lwsWorkerLabel       = "leaderworkerset.sigs.k8s.io/worker-index"
	lwsGroupLabel        = "leaderworkerset.sigs.k8s.io/group-index"
	jobSetGlobalLabel    = "jobset.sigs.k8s.io/job-global-index"
	jobSetIndexLabel     = "jobset.sigs.k8s.io/job-index"
	jobSetNameLabel      = "jobset.sigs.k8s.io/replicatedjob-name"
	kubeflowIndexLabel   = "training.kubeflow.org/replica-index"
	kubeflowReplicaLabel = "training.kubeflow.org/replica-type"
	kubeflowRoleLabel    = "training.kubeflow.org/job-role"
	podIndexLabel        = appsv1.PodIndexLabel // of a StatefulSet
)

// leaders are the roles whose pods come before all others.
var leaders = []string{"launcher", "master", "chief", "leader", "head", "driver", "coordinator"}

// maxIndex bounds the numbers that controllers assign.
const maxIndex = 1 << 20

// seat is a member's place in its job; its replacement has the same seat.
type seat struct {
	follows bool   // not a leader's seat
	role    string // empty if group distinguishes roles
	group   int    // of several equal ones: a JobSet's Job, a LeaderWorkerSet's group
	index   int    // in the group; -1 if it has no number
}

type identity struct {
	seat
	pod *v1.Pod
}

// identify reads a pod's seat from the labels of its controllers.
func identify(p *v1.Pod) identity {
	role := cmp.Or(p.Labels[kubeflowReplicaLabel], p.Labels[jobSetNameLabel], p.Labels[batchv1.JobNameLabel])
	s := seat{role: role, index: -1}
	s.follows = !slices.Contains(leaders, strings.ToLower(role)) && !slices.Contains(leaders, strings.ToLower(p.Labels[kubeflowRoleLabel]))
	completion := cmp.Or(p.Labels[batchv1.JobCompletionIndexAnnotation], p.Annotations[batchv1.JobCompletionIndexAnnotation])
	switch {
	case s.number(p.Labels[lwsWorkerLabel]):
		s.group, _ = parseIndex(p.Labels[lwsGroupLabel])
	case s.number(completion):
		if global, ok := parseIndex(p.Labels[jobSetGlobalLabel]); ok {
			s.group, s.role = global, ""
		} else {
			s.group, _ = parseIndex(p.Labels[jobSetIndexLabel])
		}
	case s.number(p.Labels[kubeflowIndexLabel]):
	case s.number(p.Labels[podIndexLabel]):
	case s.number(p.Labels[kueueGroupIndex]):
	}
	return identity{seat: s, pod: p}
}

func (s *seat) number(v string) bool {
	n, ok := parseIndex(v)
	if ok {
		s.index = n
	}
	return ok
}

func parseIndex(v string) (int, bool) {
	if v == "" { // most labels are absent
		return 0, false
	}
	n, err := strconv.ParseUint(v, 10, 31)
	if err != nil || n > maxIndex {
		return 0, false
	}
	return int(n), true
}

// compare orders members: leaders first, then by role and number, and without numbers or with equal ones
// by name. byName is the byte order of names alone.
func compare(byName bool) func(a, b identity) int {
	if byName {
		return func(a, b identity) int { return strings.Compare(a.pod.Name, b.pod.Name) }
	}
	return func(a, b identity) int {
		return cmp.Or(a.compare(b.seat), fabric.CompareNames(a.pod.Name, b.pod.Name))
	}
}

func (s seat) compare(t seat) int {
	if s.follows != t.follows {
		if s.follows {
			return 1
		}
		return -1
	}
	// Members without a number come after those with one.
	return cmp.Or(strings.Compare(s.role, t.role), cmp.Compare(s.group, t.group), cmp.Compare(uint(s.index), uint(t.index)))
}

// doubles returns warnings about numbers that two live members have. They are sorted by seat.
func doubles(live []identity) (warnings []string) {
	first := 0
	for i, id := range live {
		if id.index < 0 || i == 0 || id.seat != live[first].seat {
			first = i
			continue
		}
		warnings = append(warnings, fmt.Sprintf("%s has the index %d of %s: its rank is the last", podName(id.pod), id.index, podName(live[first].pod)))
	}
	return warnings
}
