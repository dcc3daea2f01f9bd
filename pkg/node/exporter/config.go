// SPDX-License-Identifier: Apache-2.0

package exporter

import (
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/nvtopo/nvtopo/internal/release"
	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/node/nodelease"
)

// Field managers: one for all fields, and one for the labels and the annotation outside nvtopo.dev.
const (
	FieldManager      = "nvtopo-exporter"
	AliasFieldManager = FieldManager + "-aliases"
)

// Prefixes of the Lease names; the node's name follows.
const (
	LeasePrefix      = nodelease.ExporterPrefix
	AgentLeasePrefix = nodelease.AgentPrefix
)

// Config configures an exporter. NodeName is required; all other fields have defaults.
type Config struct {
	// NodeName is the node whose topology is published.
	NodeName string
	// Resource is the extended resource of the GPUs; nvidia.com/gpu by default.
	Resource string
	// Interval is the time between two readings without an event; 30 s by default.
	Interval time.Duration
	// Resync is how often the published objects are read back, to detect changes and deletions by others;
	// ten intervals by default.
	Resync time.Duration
	// Namespace of the Leases; nvtopo-system by default.
	Namespace string
	// NoCompatLabels leaves out the labels and the annotation outside nvtopo.dev.
	NoCompatLabels bool
	// AssumeEnforced declares that pods get the devices that the scheduler chose. This is true only for
	// simulated nodes: it replaces the node agent's Lease and condition.
	AssumeEnforced bool
}

func (c Config) withDefaults() (Config, error) {
	if c.NodeName == "" {
		return c, errors.New("the node's name is empty")
	}
	if msgs := validation.IsDNS1123Subdomain(c.NodeName); len(msgs) > 0 {
		return c, fmt.Errorf("node name %q: %s", c.NodeName, msgs[0])
	}
	if c.Resource == "" {
		c.Resource = v1alpha1.DefaultResource
	}
	if msgs := validation.IsQualifiedName(c.Resource); len(msgs) > 0 {
		return c, fmt.Errorf("resource %q: %s", c.Resource, msgs[0])
	}
	if c.Namespace == "" {
		c.Namespace = release.Namespace
	}
	if c.Interval < 0 || c.Resync < 0 {
		return c, errors.New("intervals must not be negative")
	}
	if c.Interval == 0 {
		c.Interval = 30 * time.Second
	}
	if c.Resync == 0 {
		c.Resync = 10 * c.Interval
	}
	return c, nil
}
