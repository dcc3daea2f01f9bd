// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"context"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
	fwk "k8s.io/kube-scheduler/framework"
	schedutil "k8s.io/kubernetes/pkg/scheduler/util"

	poolv1alpha1 "github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/nodestate"
	"github.com/nvtopo/nvtopo/pkg/pools/names"
	"github.com/nvtopo/nvtopo/pkg/pools/units"
)

// keptKey is the key under which PreBind stores that the pod needs no finalizer any more.
const keptKey fwk.StateKey = "nvtopo.dev/kept"

// kept is stored under keptKey; it says all by being there.
type kept struct{}

// Clone returns the same.
func (k kept) Clone() fwk.StateData { return k }

// keeps reports whether the pod is to get the finalizer of metering: it asks for devices in a
// tenant's namespace. Without it, a pod that is bound and deleted while the pool controller is away
// is on no bill. The cache may not show the label of a namespace yet, but Kueue lets no pod in before
// the pool controller has seen it and made the tenant's queue.
func (p *Plugin) keeps(state fwk.CycleState, pod *v1.Pod) bool {
	if slices.Contains(pod.Finalizers, names.FinalizerMetering) || !units.AsksForDevices(pod) {
		return false
	}
	if _, err := state.Read(keptKey); err == nil {
		return false // the other plugin has written it in this cycle
	}
	namespace, err := p.namespaces.Get(pod.Namespace)
	return err == nil && namespace.Labels[poolv1alpha1.LabelTenant] != ""
}

// finalizers are those that the write of a choice adds.
func (p *Plugin) finalizers(state fwk.CycleState, pod *v1.Pod) []string {
	if p.keeps(state, pod) {
		return []string{names.FinalizerMetering}
	}
	return nil
}

// keep adds the finalizer to a pod whose choice is written by the Binding, or that has none. A write
// that is carried out late does no harm: the pool controller takes the finalizer from every pod that
// has ended.
func (p *Plugin) keep(ctx context.Context, state fwk.CycleState, pod *v1.Pod, attempt nodestate.Attempt) error {
	if !p.keeps(state, pod) {
		return nil
	}
	end, err := attempt.BeginWrite(ctx)
	if err != nil {
		return err
	}
	defer end()
	body := fmt.Appendf(nil, `{"metadata":{"uid":%q,"finalizers":[%q]}}`, pod.UID, names.FinalizerMetering)
	ctx, cancel := p.state.Bounded(ctx)
	defer cancel()
	_ = retry.OnError(retry.DefaultBackoff, schedutil.Retriable, func() error {
		_, err = p.handle.ClientSet().CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.StrategicMergePatchType, body, metav1.PatchOptions{})
		return err
	})
	if err != nil {
		return fmt.Errorf("adding the finalizer %s to pod %s/%s: %w", names.FinalizerMetering, pod.Namespace, pod.Name, err)
	}
	state.Write(keptKey, kept{})
	return nil
}
