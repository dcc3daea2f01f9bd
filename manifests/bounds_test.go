// SPDX-License-Identifier: Apache-2.0

package manifests_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel/model"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/cel/common"

	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

// listOf makes a list of n entries.
func listOf(n int, entry func(i int) any) []any {
	out := make([]any, n)
	for i := range out {
		out[i] = entry(i)
	}
	return out
}

// inRows returns an object with n GPUs, with names of links and rows as long as they may be.
func inRows(n int) map[string]any {
	obj := node(n)
	spec := obj["spec"].(map[string]any)
	spec["linkKinds"] = listOf(32, func(i int) any {
		return map[string]any{"name": fmt.Sprintf("NVLink/NODE.%04d", i), "class": "NVLink", "bandwidth": "450G"}
	})
	spec["linkRows"] = listOf(n-1, func(i int) any {
		return strings.TrimSuffix(strings.Repeat("NVLink/NODE.0031 ", n-1-i), " ")
	})
	return obj
}

// TestPublishingLimits has objects at each limit, which are accepted, and one
// beyond it, which is refused there: what the programs keep to and what the schema has is
// one number.
func TestPublishingLimits(t *testing.T) {
	nodes := func(n, siblings, distances int) func(o map[string]any) {
		return func(o map[string]any) {
			o["spec"].(map[string]any)["numaNodes"] = listOf(n, func(i int) any {
				return map[string]any{
					"id": int64(i), "siblings": listOf(siblings, func(int) any { return "0,1" }),
					"distances": listOf(distances, func(int) any { return int64(10) }),
				}
			})
		}
	}
	nics := func(n, distances int) func(o map[string]any) {
		return func(o map[string]any) {
			o["spec"].(map[string]any)["nics"] = listOf(n, func(i int) any {
				return map[string]any{"name": fmt.Sprintf("mlx5_%d", i), "numaNode": int64(0), "distances": listOf(distances, func(int) any { return "PIX" })}
			})
		}
	}
	status := func(key string, value any) func(o map[string]any) {
		return func(o map[string]any) { o["status"] = map[string]any{key: value} }
	}
	kubelet := func(key string, value any) func(o map[string]any) {
		return status("kubelet", map[string]any{"topologyManagerPolicy": "none", key: value})
	}
	allocations := func(n, gpus, cpus int) func(o map[string]any) {
		return status("allocations", listOf(n, func(i int) any {
			return map[string]any{
				"podUID": strconv.Itoa(i), "container": "c", "resource": "nvidia.com/gpu", "state": "foreign", "cpus": strings.Repeat("1", cpus),
				"gpus": listOf(gpus, func(j int) any { return fmt.Sprintf("GPU-%d", j) }),
			}
		}))
	}
	memory := func(n, cells int) func(o map[string]any) {
		return kubelet("memory", listOf(n, func(i int) any {
			return map[string]any{"numaNode": int64(i), "allocatable": "1Gi", "free": "1Gi", "cells": listOf(cells, func(j int) any { return int64(j) })}
		}))
	}
	condition := func(n int) func(o map[string]any) {
		return status("conditions", []any{map[string]any{
			"type": "Ready", "status": "True", "reason": "R", "message": strings.Repeat("x", n), "lastTransitionTime": "2026-01-01T00:00:00Z",
		}})
	}
	option := func(n int) func(o map[string]any) {
		return kubelet("cpuManagerOptions", map[string]any{"o": strings.Repeat("x", n)})
	}
	const cpus = v1alpha1.MaxAllocatedCPUs / v1alpha1.MaxAllocations
	tests := map[string]struct {
		gpus         int
		most, beyond func(o map[string]any)
		wantField    string
	}{
		"siblings":            {8, nodes(8, v1alpha1.MaxSiblings/8, 0), nodes(8, v1alpha1.MaxSiblings/8+1, 0), "spec.numaNodes"},
		"siblings of a node":  {8, nodes(2, v1alpha1.MaxSiblings/2, 0), nodes(2, v1alpha1.MaxSiblings+1, 0), "spec.numaNodes[0].siblings"},
		"distances":           {8, nodes(v1alpha1.MaxDistances, 0, v1alpha1.MaxDistances), nodes(v1alpha1.MaxDistances+1, 0, v1alpha1.MaxDistances+1), "spec.numaNodes[0].distances"},
		"NUMA nodes":          {8, nodes(64, 0, 0), nodes(65, 0, 0), "spec.numaNodes"},
		"adapters' distances": {8, nics(v1alpha1.MaxNICDistances/8, 8), nics(v1alpha1.MaxNICDistances/8+1, 8), "spec.nics"},
		"allocations":         {8, allocations(v1alpha1.MaxAllocations, 1, 0), allocations(v1alpha1.MaxAllocations+1, 1, 0), "status.allocations"},
		"allocated GPUs":      {8, allocations(8, v1alpha1.MaxAllocatedGPUs/8, 0), allocations(9, v1alpha1.MaxAllocatedGPUs/8, 0), "status.allocations"},
		"allocated CPUs":      {8, allocations(v1alpha1.MaxAllocations, 1, cpus), allocations(v1alpha1.MaxAllocations, 1, cpus+1), "status.allocations"},
		"cells":               {8, memory(36, 36), memory(37, 37), "status.kubelet.memory"},
		"a message":           {8, condition(2048), condition(2049), "status.conditions"},
		"an option":           {8, option(v1alpha1.MaxOption), option(v1alpha1.MaxOption + 1), "status.kubelet.cpuManagerOptions"},
		"GPUs":                {8, func(o map[string]any) { o["spec"] = inRows(nvtopo.MaxGPUs)["spec"] }, func(o map[string]any) { o["spec"] = inRows(nvtopo.MaxGPUs + 1)["spec"] }, "spec.gpus"},
	}
	validate := objectValidator(t, v1alpha1.Kind)
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			most, beyond := node(tc.gpus), node(tc.gpus)
			tc.most(most)
			tc.beyond(beyond)
			// The validator judges GPUs by the NUMA nodes that a case puts in their place.
			for _, err := range validate(most) {
				t.Errorf("at the limit: %v", err)
			}
			errs := validate(beyond)
			if !slices.ContainsFunc(errs, func(err *field.Error) bool { return err.Field == tc.wantField }) {
				t.Errorf("beyond it: refused with %v, want an error at %s", errs, tc.wantField)
			}
		})
	}
}

// TestOversizedListReboot: an old oversized list stays through a reboot: what an exporter of the
// previous release stored beyond the sums does not keep this node's next boot from being published
// (validation ratcheting), and is refused only in a list that changes.
func TestOversizedListReboot(t *testing.T) {
	tests := map[string]struct {
		list          string
		old           []any
		change        func(entry map[string]any)
		wantAtAChange string
	}{
		"siblings": {"numaNodes", listOf(8, func(i int) any {
			return map[string]any{"id": int64(i), "siblings": listOf(v1alpha1.MaxSiblings/8+1, func(int) any { return "0,1" })}
		}), func(entry map[string]any) { entry["cpus"] = "0-1" }, "spec.numaNodes"},
		"adapters' distances": {"nics", listOf(v1alpha1.MaxNICDistances/8+1, func(i int) any {
			return map[string]any{"name": fmt.Sprintf("mlx5_%d", i), "numaNode": int64(0), "distances": listOf(8, func(int) any { return "PIX" })}
		}), func(entry map[string]any) { entry["numaNode"] = int64(1) }, "spec.nics"},
	}
	structural := structuralSchema(t, v1alpha1.Kind)
	rules := cel.NewValidator(structural, true, celconfig.PerCallLimit)
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			old := node(8)
			old["spec"].(map[string]any)[tc.list] = tc.old
			update := func(now map[string]any) field.ErrorList {
				same := common.NewCorrelatedObject(now, old, &model.Structural{Structural: structural})
				errs, _ := rules.Validate(t.Context(), nil, structural, now, old, celconfig.RuntimeCELCostBudget, cel.WithRatcheting(same))
				return errs
			}
			rebooted := runtime.DeepCopyJSON(old)
			rebooted["spec"].(map[string]any)["bootID"] = "another"
			for _, err := range update(rebooted) {
				t.Errorf("after a reboot: %v", err)
			}
			tc.change(rebooted["spec"].(map[string]any)[tc.list].([]any)[0].(map[string]any))
			errs := update(rebooted)
			if !slices.ContainsFunc(errs, func(err *field.Error) bool { return err.Field == tc.wantAtAChange }) {
				t.Errorf("another list is refused with %v, want an error at %s", errs, tc.wantAtAChange)
			}
		})
	}
}
