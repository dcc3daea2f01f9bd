// SPDX-License-Identifier: Apache-2.0

package sim

import "github.com/nvtopo/nvtopo/internal/lab/sim/judge"

// Result holds the measurements of one replay. It covers pods that arrived after the warm-up; levels are
// means over the time from the end of the warm-up to the last arrival.
type Result struct {
	Policy string  `json:"policy"`
	Seed   uint64  `json:"seed"`
	Load   float64 `json:"load"` // 0: arrivals as in the trace

	Nodes int `json:"nodes"`
	GPUs  int `json:"gpus"` // healthy ones
	Pods  int `json:"pods"` // measured
	// MultiGPUPods are the measured pods with two GPUs or more.
	MultiGPUPods int `json:"multiGPUPods"`
	// Unplaceable are the pods of jobs that do not fit even the empty cluster; they
	// count nowhere else.
	Unplaceable int `json:"unplaceable"`
	// Unfinished are pods that still waited when no job ran any more; 0 unless the policy never finds room
	// for pods that fit.
	Unfinished int `json:"unfinished"`

	// BestClassShare is the share of the multi-GPU pods whose ring is as fast as
	// the best for as many GPUs on the same machine when empty.
	BestClassShare float64 `json:"bestClassShare"`
	// BestClassShareBySize is that share by the GPUs of a pod.
	BestClassShareBySize map[int]float64 `json:"bestClassShareBySize"`
	// MeanRingRatio is the mean of ring over best ring, over the multi-GPU pods.
	MeanRingRatio float64 `json:"meanRingRatio"`
	// MeanRegretGBps is the mean, over the multi-GPU pods, of the best ring that
	// any node could have given at that moment less the ring got.
	MeanRegretGBps float64 `json:"meanRegretGBps"`
	// SingleNUMAShare is the share of the multi-GPU pods within one NUMA node.
	SingleNUMAShare float64 `json:"singleNUMAShare"`
	// KubeletRejections counts the attempts, warm-up included, in which the node
	// chosen would have refused the pod for its topology policy.
	KubeletRejections int `json:"kubeletRejections"`
	// PickerFailures counts the attempts, warm-up included, in which the picker
	// found no set although enough GPUs were free; the lowest were taken.
	PickerFailures int `json:"pickerFailures"`

	// AllocationRatio is the mean share of the GPUs that pods hold.
	AllocationRatio float64 `json:"allocationRatio"`
	// FGDFragmentation is the share of the free GPUs that the next pod of the
	// trace's mix is expected not to be able to use.
	FGDFragmentation float64 `json:"fgdFragmentation"`
	// StrandedForFour is the share of the free GPUs in no best-class group of four,
	// on machines that have four GPUs or more.
	StrandedForFour float64 `json:"strandedForFour"`

	// The waits are seconds from a pod's arrival to its start.
	MeanWaitS      float64 `json:"meanWaitS"`
	P99WaitS       float64 `json:"p99WaitS"`
	MeanWaitMultiS float64 `json:"meanWaitMultiS"`
	MeanWait8S     float64 `json:"meanWait8S"` // pods of eight GPUs

	// WindowS is the measured time in seconds.
	WindowS float64 `json:"windowS"`

	// Judged holds the results of the measured pods, without the terms that policies choose by; see
	// Config.MessageBytes. Policies are compared by it where Unfinished is 0.
	Judged *judge.Verdict `json:"judged,omitempty"`

	// Gangs are the jobs of several pods of a replay on a fabric.
	Gangs *GangResult `json:"gangs,omitempty"`
}
