// SPDX-License-Identifier: Apache-2.0

package manifests_test

import (
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/nvtopo/nvtopo/pkg/apis/config"
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

// podOf returns the pod that an example is or makes.
func podOf(obj runtime.Object) (*v1.Pod, bool) {
	switch o := obj.(type) {
	case *v1.Pod:
		return o, true
	case *batchv1.Job:
		return &v1.Pod{ObjectMeta: o.Spec.Template.ObjectMeta, Spec: o.Spec.Template.Spec}, true
	}
	return nil, false
}

func supported(t *testing.T, args *config.TopologyAwareArgs) []nvtopo.Policy {
	t.Helper()
	var out []nvtopo.Policy
	for _, name := range args.SupportedPolicies {
		p, err := nvtopo.ParsePolicy(name)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, p)
	}
	return out
}
