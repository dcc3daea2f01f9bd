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
	// AllowNoGraph: pods without hard demands may be bound without an allocation where
	// no graph counts.
	AllowNoGraph bool `json:"allowNoGraph,omitempty"`
	// CountStale: the same where it does not count any more.
	CountStale bool `json:"countStale,omitempty"`
	// SupportedPolicies are those that pods may use.
	SupportedPolicies []string `json:"supportedPolicies,omitempty"`
	UnenforcedNodes   string   `json:"unenforcedNodes,omitempty"`
	HardwareLabels    []string `json:"hardwareLabels,omitempty"`
	// DefaultAffinity is the numa-affinity of pods that name none.
	DefaultAffinity string `json:"defaultAffinity,omitempty"`
	// CPUSet: CPUs are chosen near the GPUs.
	CPUSet bool `json:"cpuset,omitempty"`
	// ResidualWeights are by the size of a group.
	ResidualWeights map[int]float64 `json:"residualWeights,omitempty"`
	// Order is how nodes are compared; nil: none was published.
	Order *Order `json:"order,omitempty"`
}

// Order is how a profile compares nodes.
type Order struct {
	BandwidthWeight     float64 `json:"bandwidthWeight"`
	LatencyWeight       float64 `json:"latencyWeight"`
	FragmentationWeight float64 `json:"fragmentationWeight"`
	TimeTolerance       float64 `json:"timeTolerance"`
	LargerPodsHeadroom  float64 `json:"largerPodsHeadroom"`
	SingleGPUs          string  `json:"singleGPUs"`
}

// Profiles is what the ConfigMap ProfilesName says.
type Profiles struct {
	Version int `json:"version"`
	// Scheduler is the process that published them, as Name of State has it, and Release its release.
	Scheduler string    `json:"scheduler,omitempty"`
	Release   string    `json:"release,omitempty"`
	Profiles  []Profile `json:"profiles"`
	// LeaderLease is the plugins' argument leaderLease; nil: none was published.
	LeaderLease *LeaderLease `json:"leaderLease,omitempty"`
	// Debug is where the process answers; nil: nowhere.
	Debug *Endpoint `json:"debug,omitempty"`
}

// Endpoint is where a process shows its State and answers what-if.
type Endpoint struct {
	// Address is the host:port that the process listens at, as its own machine or pod has it: the plugins' argument
	// debugAddress.
	Address string `json:"address"`
	// CertificateSHA256 is of the certificate that it serves with, in hexadecimal digits.
	CertificateSHA256 string `json:"certificateSHA256"`
}

// ParseProfiles reads what a scheduler published. Fields that this release does not know are passed over.
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
