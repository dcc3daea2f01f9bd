// SPDX-License-Identifier: Apache-2.0

package soak

import (
	"context"
	"encoding/json"
	"errors"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nvtopo/nvtopo/pkg/placement/allocation"
	"github.com/nvtopo/nvtopo/pkg/placement/gangrequest"
)

// outputs are the annotations that only the scheduler writes.
var outputs = []string{
	allocation.Key, allocation.GPUIDsKey, allocation.NUMANodeKey, allocation.CPUSetKey, allocation.DecisionKey,
	gangrequest.PlacementKey, gangrequest.NodesKey, gangrequest.RankKey,
}

func (h *hostile) forgedPod(ctx context.Context) error {
	p := h.pod(h.name("forged"), 1)
	p.Annotations[one(h, outputs...)] = h.copied()
	return h.create(ctx, p)
}

// copied returns the text of another tenant's allocation, or junk.
func (h *hostile) copied() string {
	for _, o := range h.w.pods.GetStore().List() {
		if p, ok := o.(*v1.Pod); ok && p.Annotations[allocation.Key] != "" {
			return p.Annotations[allocation.Key]
		}
	}
	return h.junk() + "x"
}

// errNothing reports that no object exists to attack.
var errNothing = errors.New("there is no object to attack")

func (h *hostile) forge(ctx context.Context) error {
	own := h.own()
	if len(own) == 0 {
		return errNothing
	}
	return h.patchPod(ctx, one(h, own...).Name, map[string]any{"annotations": map[string]any{one(h, outputs...): h.copied() + " "}})
}

func (h *hostile) patchPod(ctx context.Context, name string, metadata map[string]any) error {
	body, err := json.Marshal(map[string]any{"metadata": metadata})
	if err != nil {
		return err
	}
	_, err = h.kube.CoreV1().Pods(hostileNamespace).Patch(ctx, name, types.MergePatchType, body, metav1.PatchOptions{})
	return err
}

func (h *hostile) patchGroup(ctx context.Context, namespace, name string, patch map[string]any) error {
	body, err := json.Marshal(patch)
	if err != nil {
		return err
	}
	_, err = h.dyn.Resource(groupResource).Namespace(namespace).Patch(ctx, name, types.MergePatchType, body, metav1.PatchOptions{})
	return err
}

func (h *hostile) forgedGroup(ctx context.Context) error {
	if len(h.groups) == 0 {
		return errNothing
	}
	return h.patchGroup(ctx, hostileNamespace, one(h, h.groups...), map[string]any{"metadata": map[string]any{
		"annotations": map[string]any{one(h, gangrequest.StateKey, gangrequest.PlacementKey): "forged " + h.name("v")},
	}})
}

func (h *hostile) trespass(ctx context.Context) error {
	p := h.pod(h.name("trespass"), 1)
	p.Namespace = namespace
	_, err := h.kube.CoreV1().Pods(namespace).Create(ctx, p, metav1.CreateOptions{})
	return err
}

func (h *hostile) editForeign(ctx context.Context) error {
	all := h.w.gangs.list()
	if len(all) == 0 {
		return errNothing
	}
	return h.patchGroup(ctx, namespace, one(h, all...).name, map[string]any{"spec": map[string]any{"minMember": 1000}})
}
