// SPDX-License-Identifier: Apache-2.0

package diagnosis

import (
	"encoding/json"
	"fmt"
)

const (
	// ProfilesName is the ConfigMap in which the scheduler that leads publishes its profiles, in the
	// namespace of its Leases.
	ProfilesName = "nvtopo-scheduler-profiles"
	// ProfilesKey is the only key of that ConfigMap.
	ProfilesKey = "profiles.json"
	// ProfilesVersion is the version of Profiles that schedulers of this release write.
	ProfilesVersion = 1
)

// Profile is a scheduler name whose GPU pods get an allocation. The fields are arguments of the plugins of
// the same names, see docs/configuration.md.
type Profile struct {
	Name      string   `json:"name"`
	Resources []string `json:"resources,omitempty"`
	// DefaultPolicy is the policy of pods that name none.
	DefaultPolicy string `json:"defaultPolicy,omitempty"`
	// AllowNoGraph: pods without hard demands may be bound without an allocation where there is no graph.
	AllowNoGraph bool `json:"allowNoGraph,omitempty"`
	// CountStale: the same where the graph is no longer valid.
	CountStale bool `json:"countStale,omitempty"`
	// SupportedPolicies are the policies that pods may use.
	SupportedPolicies []string `json:"supportedPolicies,omitempty"`
	UnenforcedNodes   string   `json:"unenforcedNodes,omitempty"`
	HardwareLabels    []string `json:"hardwareLabels,omitempty"`
	// DefaultAffinity is the numa-affinity of pods that name none.
	DefaultAffinity string `json:"defaultAffinity,omitempty"`
	// CPUSet: CPUs are chosen near the GPUs.
	CPUSet bool `json:"cpuset,omitempty"`
	// ResidualWeights are the weights by group size.
	ResidualWeights map[int]float64 `json:"residualWeights,omitempty"`
	// Order are the weights by which nodes are compared; nil: none were published.
	Order *Order `json:"order,omitempty"`
}

// Order holds the weights by which a profile compares nodes.
type Order struct {
	BandwidthWeight     float64 `json:"bandwidthWeight"`
	LatencyWeight       float64 `json:"latencyWeight"`
	FragmentationWeight float64 `json:"fragmentationWeight"`
	TimeTolerance       float64 `json:"timeTolerance"`
	LargerPodsHeadroom  float64 `json:"largerPodsHeadroom"`
	SingleGPUs          string  `json:"singleGPUs"`
}

// Profiles is the content of the ConfigMap ProfilesName.
type Profiles struct {
	Version int `json:"version"`
	// Scheduler is the process that published them, equal to Name of State, and Release its release.
	Scheduler string    `json:"scheduler,omitempty"`
	Release   string    `json:"release,omitempty"`
	Profiles  []Profile `json:"profiles"`
	// LeaderLease is the plugins' argument leaderLease; nil: none was published.
	LeaderLease *LeaderLease `json:"leaderLease,omitempty"`
	// Debug is the debug endpoint of the process; nil: it has none.
	Debug *Endpoint `json:"debug,omitempty"`
}

// Endpoint is the address at which a process serves its State and answers what-if.
type Endpoint struct {
	// Address is the host:port at which the process listens, in its own machine's or pod's network: the
	// plugins' argument debugAddress.
	Address string `json:"address"`
	// CertificateSHA256 is the SHA-256 of its serving certificate, in hexadecimal digits.
	CertificateSHA256 string `json:"certificateSHA256"`
}

// ParseProfiles reads the profiles published by a scheduler. Unknown fields are ignored.
func ParseProfiles(data map[string]string) (*Profiles, error) {
	text, ok := data[ProfilesKey]
	if !ok {
		return nil, nil // no scheduler has published yet
	}
	var p Profiles
	if err := json.Unmarshal([]byte(text), &p); err != nil {
		return nil, fmt.Errorf("ConfigMap %s: data[%s]: %w", ProfilesName, ProfilesKey, err)
	}
	if p.Version != ProfilesVersion {
		return nil, fmt.Errorf("ConfigMap %s: data[%s]: version %d: this program reads %d", ProfilesName, ProfilesKey, p.Version, ProfilesVersion)
	}
	return &p, nil
}
