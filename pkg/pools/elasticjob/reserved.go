// SPDX-License-Identifier: Apache-2.0

package elasticjob

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	kueue "github.com/nvtopo/nvtopo/pkg/apis/kueue/v1beta2"
)

// reserved returns the fields of a template that a tenant must not set: the priority of pods, which
// would let them evict other tenants' pods, and keys that Kueue writes on pods. On pods and Jobs that a
// tenant creates, admission policies refuse the same (manifests/pools/policy-jobs.yaml); they let the
// pool controller's Jobs pass.
func reserved(t *v1.PodTemplateSpec) (faults []string) {
	if class := t.Spec.PriorityClassName; class != "" && class != ExtraPriorityClass {
		faults = append(faults, fmt.Sprintf("%s.spec.priorityClassName: %s: leave it out: spec.priority orders the jobs of a pool", templatePath, class))
	}
	for _, m := range []struct {
		field string
		keys  map[string]string
	}{{"labels", t.Labels}, {"annotations", t.Annotations}} {
		for _, key := range slices.Sorted(maps.Keys(m.keys)) {
			if strings.HasPrefix(key, kueue.GroupName+"/") && !ineffective(key) {
				faults = append(faults, fmt.Sprintf("%s.metadata.%s: %s: leave it out: Kueue and the pool controller write it", templatePath, m.field, key))
			}
		}
	}
	return faults
}

// ineffective reports whether Kueue does not read a key of its own on the pods of a Job. Those that
// begin with podset- belong to topology-aware scheduling, which is off.
func ineffective(key string) bool {
	switch key {
	case kueue.LabelQueue, kueue.LabelPriorityClass, kueue.LabelMaxExecutionSeconds:
		return true
	}
	return strings.HasPrefix(key, kueue.GroupName+"/podset-")
}
