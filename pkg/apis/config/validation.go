// SPDX-License-Identifier: Apache-2.0

package config

import (
	"math"
	"strconv"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

// Sizes of the groups that residual weights speak of.
const (
	minGroup = 2
	maxGroup = 8
)

// ValidateTopologyAwareArgs reports every field that cannot be worked with.
func ValidateTopologyAwareArgs(a *TopologyAwareArgs) error {
	errs := validateCommon(&a.CommonArgs)
	path := field.NewPath("supportedPolicies")
	supported := map[nvtopo.Policy]bool{}
	for i, s := range a.SupportedPolicies {
		p, err := nvtopo.ParsePolicy(s)
		if err != nil {
			errs = append(errs, field.Invalid(path.Index(i), s, err.Error()))
			continue
		}
		supported[p] = true
	}
	if p, err := nvtopo.ParsePolicy(a.DefaultPolicy); err != nil {
		errs = append(errs, field.Invalid(field.NewPath("defaultPolicy"), a.DefaultPolicy, err.Error()))
	} else if !supported[p] {
		errs = append(errs, field.Invalid(field.NewPath("defaultPolicy"), a.DefaultPolicy, "must be one of supportedPolicies"))
	}
	sum := 0.0
	for _, w := range []struct {
		name  string
		value *float64
	}{
		{"bandwidthWeight", a.BandwidthWeight}, {"latencyWeight", a.LatencyWeight}, {"fragmentationWeight", a.FragmentationWeight},
	} {
		if w.value == nil || !inUnit(*w.value) {
			errs = append(errs, field.Invalid(field.NewPath(w.name), w.value, "must be between 0 and 1"))
			continue
		}
		sum += *w.value
	}
	if sum <= 0 {
		errs = append(errs, field.Invalid(field.NewPath("bandwidthWeight"), sum, "the three weights must not all be 0"))
	}
	switch a.UnenforcedNodes {
	case UnenforcedAllow, UnenforcedWholeNodeOnly, UnenforcedRefuse:
	default:
		errs = append(errs, field.NotSupported(field.NewPath("unenforcedNodes"), a.UnenforcedNodes,
			[]UnenforcedNodes{UnenforcedAllow, UnenforcedWholeNodeOnly, UnenforcedRefuse}))
	}
	switch a.NodesWithoutTopology {
	case TopologyRefuse, TopologyAllow:
	default:
		errs = append(errs, field.NotSupported(field.NewPath("nodesWithoutTopology"), a.NodesWithoutTopology,
			[]NodesWithoutTopology{TopologyRefuse, TopologyAllow}))
	}
	return errs.ToAggregate()
}

// ValidateNUMAAffinityArgs reports every field that cannot be worked with.
func ValidateNUMAAffinityArgs(a *NUMAAffinityArgs) error {
	errs := validateCommon(&a.CommonArgs)
	for _, w := range []struct {
		name  string
		value *int64
	}{{"sameNUMABonus", a.SameNUMABonus}, {"crossNUMAPenalty", a.CrossNUMAPenalty}} {
		if w.value == nil || *w.value < 0 || *w.value > 100 {
			errs = append(errs, field.Invalid(field.NewPath(w.name), w.value, "must be between 0 and 100"))
		}
	}
	switch a.DefaultAffinity {
	case "none", "preferred", "required":
	default:
		errs = append(errs, field.NotSupported(field.NewPath("defaultAffinity"), a.DefaultAffinity, []string{"none", "preferred", "required"}))
	}
	return errs.ToAggregate()
}

func inUnit(f float64) bool { return f >= 0 && f <= 1 && !math.IsNaN(f) }

func validateCommon(a *CommonArgs) field.ErrorList {
	var errs field.ErrorList
	path := field.NewPath("resources")
	if len(a.Resources) == 0 {
		errs = append(errs, field.Required(path, "at least one extended resource"))
	}
	seen := map[string]bool{}
	for i, r := range a.Resources {
		for _, msg := range validation.IsQualifiedName(r) {
			errs = append(errs, field.Invalid(path.Index(i), r, msg))
		}
		if seen[r] {
			errs = append(errs, field.Duplicate(path.Index(i), r))
		}
		seen[r] = true
	}
	switch a.AnnotationWrite {
	case WritePreBind, WriteBinding:
	default:
		errs = append(errs, field.NotSupported(field.NewPath("annotationWrite"), a.AnnotationWrite, []AnnotationWrite{WritePreBind, WriteBinding}))
	}
	for _, msg := range validation.IsDNS1123Label(a.Namespace) {
		errs = append(errs, field.Invalid(field.NewPath("namespace"), a.Namespace, msg))
	}
	if a.RequestTimeout.Duration <= 0 {
		errs = append(errs, field.Invalid(field.NewPath("requestTimeout"), a.RequestTimeout.Duration.String(), "must be above 0"))
	}
	if a.LeaderLease.Term.Duration <= 0 {
		errs = append(errs, field.Invalid(field.NewPath("leaderLease", "term"), a.LeaderLease.Term.Duration.String(), "must be above 0"))
	}
	for k, w := range a.ResidualWeights {
		key := field.NewPath("residualWeights").Key(k)
		if g, err := strconv.Atoi(k); err != nil || g < minGroup || g > maxGroup {
			errs = append(errs, field.Invalid(key, k, "must be a group size from 2 to 8"))
		}
		if !inUnit(w) {
			errs = append(errs, field.Invalid(key, w, "must be between 0 and 1"))
		}
	}
	return errs
}

// Weights returns the residual weights as the library takes them, in thousandths.
func (a *CommonArgs) Weights() nvtopo.Weights {
	w := nvtopo.DefaultWeights()
	for k, v := range a.ResidualWeights {
		if g, err := strconv.Atoi(k); err == nil && g >= minGroup && g <= maxGroup {
			w.Group[g] = int64(math.Round(v * 1000))
		}
	}
	return w
}
