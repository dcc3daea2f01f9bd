// SPDX-License-Identifier: Apache-2.0

package main

// Cell is the result of one profile on one workload and size of cluster, once. The report finds
// figures by their names in JSON.
type Cell struct {
	Nodes    int    `json:"nodes"`
	Workload string `json:"workload"`
	Profile  string `json:"profile"`
	Repeat   int    `json:"repeat"`
	Pods     int    `json:"pods"`

	*Service // of a real control plane, or
	*Cycle   // of the scheduling cycle alone
}

// Service is the figures of a real control plane and scheduler.
type Service struct {
	PodsPerSecond  float64 `json:"podsPerSecond"`  // in the window
	WindowFrom     int     `json:"windowFrom"`     // number of the binding that the window begins with
	GraphsRead     int     `json:"graphsRead"`     // nodes with a valid graph then; 0 if that is the first binding
	WindowSeconds  float64 `json:"windowSeconds"`  // from that binding to the last
	ElapsedSeconds float64 `json:"elapsedSeconds"` // all of the cell, cleaning included

	AttemptP50Ms float64 `json:"attemptP50Ms"` // successful attempts, binding included
	AttemptP99Ms float64 `json:"attemptP99Ms"`

	SchedulerCPUMs    float64 `json:"schedulerCPUMsPerPod"` // in the window
	ControlPlaneCPUMs float64 `json:"controlPlaneCPUMsPerPod"`
	BothCPUMs         float64 `json:"bothCPUMsPerPod"`
	// CPU up to the first binding: of the scheduler since it was started, and of the control plane
	// meanwhile. Pods with GPUs are bound once all graphs are read.
	StartCPUSeconds             float64 `json:"startCPUSeconds"`
	StartControlPlaneCPUSeconds float64 `json:"startControlPlaneCPUSeconds"`
	SchedulerPeakMiB            float64 `json:"schedulerPeakMiB"`
	LiveHeapMiB                 float64 `json:"liveHeapMiB"` // after a collection, with all pods bound
	// With nothing to schedule, in ms per second, of the scheduler, of the control plane, and of
	// this process, which simulates the nodes; 0 without -hold.
	HoldCPU             float64 `json:"holdCPUMsPerSecond"`
	HoldControlPlaneCPU float64 `json:"holdControlPlaneCPUMsPerSecond"`
	LoadCPU             float64 `json:"loadCPUMsPerSecond"`

	HostileWrites  float64 `json:"hostileWritesPerSecond,omitempty"` // objects that hostile nodes published
	HostileRefused int64   `json:"hostileRefused,omitempty"`         // and that the API server refused

	// Renewals of honest exporters' Leases beside it, in runs with hostile nodes.
	Renewals       int     `json:"renewals,omitempty"`
	RenewalsFailed int     `json:"renewalsFailed,omitempty"`
	RenewalP50Ms   float64 `json:"renewalP50Ms,omitempty"`
	RenewalP99Ms   float64 `json:"renewalP99Ms,omitempty"`

	Plans     int     `json:"plans,omitempty"` // of gangs, successful ones
	PlanP50Ms float64 `json:"planP50Ms,omitempty"`
	PlanP99Ms float64 `json:"planP99Ms,omitempty"`

	WritesPerPod  float64            `json:"writesPerPod"`  // of pods and their subresources, done by the API server
	RefusedPerPod float64            `json:"refusedPerPod"` // the same, answered with an error: overload (429), conflicts
	Writes        map[string]float64 `json:"writes"`        // "VERB resource code" -> requests

	Attempts    map[string]float64 `json:"attempts"`            // result -> attempts
	Unscheduled float64            `json:"unscheduledAttempts"` // attempts that did not place their pod
	Batch       map[string]float64 `json:"batch"`               // result -> attempts to use batching
	HintUsed    float64            `json:"hintUsed"`            // cycles that took their node from the one before
}

// Cycle is the figures of the scheduling cycle alone. Times are µs per pod.
type Cycle struct {
	Wall      float64 `json:"wallMicrosPerPod"`
	CPU       float64 `json:"cpuMicrosPerPod"` // of the whole process, garbage collection included
	P50       float64 `json:"p50Micros"`
	P99       float64 `json:"p99Micros"`
	Mallocs   float64 `json:"allocationsPerPod"`
	KiB       float64 `json:"kibPerPod"`
	Evaluated float64 `json:"nodesFilteredPerPod"`
	Feasible  float64 `json:"nodesFeasiblePerPod"`
	Hints     int     `json:"hintsUsed"`             // cycles that took batching's hint
	Retries   int     `json:"cyclesAfterPostFilter"` // cycles after PostFilter requested another

	// From the CPU profile; Ours is the time in our packages and all that they call.
	Samples int64   `json:"samples"`
	InCycle float64 `json:"cycleCPUMicrosPerPod"`
	Ours    float64 `json:"oursMicrosPerPod"`
}
