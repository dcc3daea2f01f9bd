// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import v1 "k8s.io/api/core/v1"

// DefaultHardwareLabels are the labels that name a node's hardware, where a profile of the scheduler
// names none: those of NVIDIA's GPU feature discovery, of Kubernetes, and of clouds.
func DefaultHardwareLabels() []string {
	return []string{
		"nvidia.com/gpu.product", "nvidia.com/gpu.family", "nvidia.com/gpu.machine", v1.LabelInstanceTypeStable,
		"cloud.google.com/gke-accelerator", "karpenter.k8s.aws/instance-family", "karpenter.k8s.aws/instance-gpu-name",
	}
}
