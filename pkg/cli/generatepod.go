// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/nvtopo/nvtopo/internal/release"
	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/cli/generate"
	"github.com/nvtopo/nvtopo/pkg/placement/podrequest"
)

// Defaults of a pod for each GPU.
const (
	cpusPerGPU         = 8
	memoryPerGPU       = 32 << 30 // bytes
	sharedMemoryPerGPU = 16 << 30 // bytes
)

// Images and ports of the pods that are written without --image.
const (
	trainingImage  = "pytorch/pytorch:2.9.0-cuda12.8-cudnn9-runtime"
	inferenceImage = "vllm/vllm-openai:v0.11.0"
	inferencePort  = 8000
)

type podOptions struct {
	pod                   generate.Pod
	workload              string
	command               string
	memory, shared        string
	policy, affinity      string
	minLink, minBandwidth string
}

func newGeneratePod() *cobra.Command {
	var o podOptions
	cmd := &cobra.Command{
		Use:   "pod --gpus COUNT [flags] [-- COMMAND]",
		Short: "Write a pod that runs beside its GPUs",
		Long: `Write a pod that the scheduler places by its GPUs' links and NUMA nodes: for training,
or an inference server of the class Guaranteed, which gets CPUs of its own under
kubelet's static CPU manager.

Without --cpus, --memory and --shm-size it has 8 CPUs, 32Gi of memory and, as a part of
it, 16Gi of /dev/shm for each GPU. CUDA indices restart at 0 inside the container.`,
		Example: `  NVTOPO generate pod --gpus 4 | kubectl apply -f -
  NVTOPO generate pod --workload inference --gpus 1 --policy single-numa-node
  NVTOPO generate pod --gpus 5 --cpus 48 --memory 192Gi --shm-size 96Gi --nccl-topo-configmap nccl-topology
  NVTOPO generate pod --gpus 2 --min-link NVLINK --image example.com/train:1 -- python train.py`,
		Args: commandArgs,
		RunE: o.run,
	}
	f := cmd.Flags()
	f.StringVar(&o.workload, "workload", string(generate.Training), "training or inference")
	f.IntVar(&o.pod.GPUs, "gpus", 0, "how many GPUs (required)")
	f.IntVar(&o.pod.CPUs, "cpus", 0, "how many CPUs (default: 8 for each GPU)")
	f.StringVar(&o.memory, "memory", "", "memory, for example 64Gi or 64g (default: 32Gi for each GPU)")
	f.StringVar(&o.shared, "shm-size", "", "size of /dev/shm, a part of the memory (default: 16Gi for each GPU)")
	f.StringVar(&o.pod.Name, "name", "", "name of the pod (default: the workload and the number of GPUs)")
	f.StringVar(&o.pod.Image, "image", "", "image (default: PyTorch for training, vLLM for inference)")
	f.StringVar(&o.command, "command", "", "command line in the container, instead of the COMMAND; its words are divided at spaces (default: that of the image)")
	f.StringVar(&o.pod.Resource, "resource", v1alpha1.DefaultResource, "extended resource that counts GPUs")
	f.StringVar(&o.pod.Scheduler, "scheduler-name", release.Profile, "schedulerName of the pod")
	f.StringVar(&o.policy, "policy", "best-effort", "none, best-effort, restricted or single-numa-node")
	f.StringVar(&o.affinity, "numa-affinity", "", "none, preferred or required (default: preferred for training, required for inference)")
	f.StringVar(&o.minLink, "min-link", "", "worst link class accepted between any two of the GPUs, for example NVLINK, NV4 or PHB")
	f.StringVar(&o.minBandwidth, "min-bandwidth", "", "least bandwidth of the ring's weakest link in GB/s, or with a unit: 100GB/s, 800Gb/s")
	f.StringVar(&o.pod.Interface, "nccl-interface", "eth0", "the pod's network interface, for NCCL; \"\" lets NCCL find one")
	f.StringVar(&o.pod.TopologyConfigMap, "nccl-topo-configmap", "", `ConfigMap with NCCL's topology under the key topo.xml, see "generate nccl-topo"`)
	return cmd
}

func (o *podOptions) run(cmd *cobra.Command, command []string) error {
	p := &o.pod
	switch {
	case p.GPUs < 1:
		return usagef("--gpus is needed: the number of GPUs, 1 or more")
	case cmd.Flags().Changed("cpus") && p.CPUs < 1:
		return usagef("--cpus %d: want the number of CPUs, 1 or more", p.CPUs)
	}
	if p.CPUs == 0 {
		p.CPUs = cpusPerGPU * p.GPUs
	}
	var err error
	if p.Memory, err = parseQuantity("--memory", cmp.Or(o.memory, perGPU(memoryPerGPU, p.GPUs))); err != nil {
		return err
	}
	if p.SharedMemory, err = parseQuantity("--shm-size", cmp.Or(o.shared, perGPU(sharedMemoryPerGPU, p.GPUs))); err != nil {
		return err
	}
	if p.Command, err = commandOf(o.command, command); err != nil {
		return err
	}
	p.Workload = generate.Workload(o.workload)
	o.fillIn()
	data, err := p.Write()
	return writeGenerated(cmd, data, err)
}

// fillIn sets the fields that depend on the workload.
func (o *podOptions) fillIn() {
	p, own := &o.pod, o.pod.Image != ""
	p.Name = cmp.Or(p.Name, fmt.Sprintf("%s-%dgpu", o.workload, p.GPUs))
	affinity := "preferred"
	switch {
	case p.Workload == generate.Inference:
		affinity = "required"
		if !own {
			p.Image, p.Port = inferenceImage, inferencePort
		}
		if !own && len(p.Command) == 0 {
			p.Command = []string{"vllm", "serve", "Qwen/Qwen3-8B", "--tensor-parallel-size=" + strconv.Itoa(p.GPUs)}
		}
	case !own:
		p.Image = trainingImage
		if len(p.Command) == 0 {
			p.Command = []string{"torchrun", "--standalone", "--nproc-per-node=" + strconv.Itoa(p.GPUs), "train.py"}
		}
	}
	p.Annotations = map[string]string{}
	for key, value := range map[string]string{
		podrequest.TopologyPolicyKey: o.policy, podrequest.NUMAAffinityKey: cmp.Or(o.affinity, affinity),
		podrequest.MinLinkKey: o.minLink, podrequest.MinBandwidthKey: o.minBandwidth,
	} {
		if value != "" {
			p.Annotations[key] = value
		}
	}
}

// perGPU returns an amount of memory for a number of GPUs in Kubernetes' form.
func perGPU(bytes int64, gpus int) string { return strconv.FormatInt(bytes*int64(min(gpus, 64)), 10) }
