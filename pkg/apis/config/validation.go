// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

// maxNUMAPoints is the most that a bonus or penalty can matter: scores end at 100.
const maxNUMAPoints = 100

const (
	// maxScore is the best score of a node.
	maxScore = 100
	// maxNarrowTo is the size of the largest supported clusters.
	maxNarrowTo = 5000
	// minGraphFreshness is two renewals of the exporter's Lease, 30 s ± 5 s each: one
	// that is late must not make a node's graph stale.
	minGraphFreshness = 70 * time.Second
	// minTerminationWait is the unit of grace periods, and maxTerminationWait how long a
	// pod may be nominated for a node at most while nothing happens there.
	minTerminationWait, maxTerminationWait = time.Second, time.Hour
	// minScheduleTimeout is how long one attempt to place a gang lasts at least
	// (pkg/scheduler/gangstate). maxGangWait is the longest patience that a gang may ask for.
	minScheduleTimeout, maxGangWait = 10 * time.Second, 24 * time.Hour
	// minDrainAfter has nothing kept for a gang that has just come.
	minDrainAfter = time.Second
	// minDrainFor is longer than what a gang needs to be placed once it has room, and maxDrainFor a week.
	minDrainFor, maxDrainFor = time.Minute, 7 * 24 * time.Hour
)

// ValidateTopologyAwareArgs reports everything that is wrong with defaulted
// arguments in one error.
func ValidateTopologyAwareArgs(args *TopologyAwareArgs) error {
	errs := validateCommon(&args.CommonArgs)
	errs = append(errs, validatePolicies(args)...)
	errs = append(errs, validateScoreWeights(args)...)
	errs = append(errs, within(field.NewPath("timeTolerance"), args.TimeTolerance, 0, 1)...)
	errs = append(errs, within(field.NewPath("largerPodsHeadroom"), args.LargerPodsHeadroom, 0, 10)...)
	errs = append(errs, oneOf(field.NewPath("singleGPUs"), args.SingleGPUs, SingleGPUsSlowLinks, SingleGPUsLeastLost, SingleGPUsSlowGPUs)...)
	errs = append(errs, validateLabels(field.NewPath("hardwareLabels"), args.HardwareLabels)...)
	errs = append(errs, within(field.NewPath("narrowTo"), args.NarrowTo, 0, maxNarrowTo)...)
	errs = append(errs, within(field.NewPath("narrowTolerance"), args.NarrowTolerance, 0, maxScore)...)
	if args.ReserveGPUNodes == nil {
		errs = append(errs, field.Required(field.NewPath("reserveGPUNodes"), ""))
	}
	errs = append(errs, oneOf(field.NewPath("unenforcedNodes"), args.UnenforcedNodes,
		UnenforcedNodesAllow, UnenforcedNodesWholeNodeOnly, UnenforcedNodesRefuse)...)
	errs = append(errs, oneOf(field.NewPath("nodesWithoutTopology"), args.NodesWithoutTopology,
		NodesWithoutTopologyRefuse, NodesWithoutTopologyAllow)...)
	errs = append(errs, oneOf(field.NewPath("staleTopology"), args.StaleTopology, StaleTopologyRefuse, StaleTopologyCount)...)
	if d := args.TerminationWait.Duration; d < minTerminationWait || d > maxTerminationWait {
		errs = append(errs, field.Invalid(field.NewPath("terminationWait"), args.TerminationWait.String(),
			fmt.Sprintf("must be between %v and %v", minTerminationWait, maxTerminationWait)))
	}
	return errs.ToAggregate()
}

// ValidateNUMAAffinityArgs reports everything that is wrong with defaulted
// arguments in one error.
func ValidateNUMAAffinityArgs(args *NUMAAffinityArgs) error {
	errs := validateCommon(&args.CommonArgs)
	errs = append(errs, within(field.NewPath("sameNUMABonus"), args.SameNUMABonus, 0, maxNUMAPoints)...)
	errs = append(errs, within(field.NewPath("crossNUMAPenalty"), args.CrossNUMAPenalty, 0, maxNUMAPoints)...)
	errs = append(errs, oneOf(field.NewPath("defaultAffinity"), args.DefaultAffinity,
		NUMAAffinityNone, NUMAAffinityPreferred, NUMAAffinityRequired)...)
	if args.CPUSet == nil {
		errs = append(errs, field.Required(field.NewPath("cpuset"), ""))
	}
	return errs.ToAggregate()
}

// ValidateGangPlacementArgs reports everything that is wrong with defaulted arguments in one
// error.
func ValidateGangPlacementArgs(args *GangPlacementArgs) error {
	errs := zeroOrWithin(field.NewPath("scheduleTimeout"), args.ScheduleTimeout, minScheduleTimeout, maxGangWait)
	errs = append(errs, zeroOrWithin(field.NewPath("drainAfter"), args.DrainAfter, minDrainAfter, maxGangWait)...)
	errs = append(errs, validateDrain(args)...)
	errs = append(errs, zeroOrWithin(field.NewPath("anyModelAfter"), args.AnyModelAfter, time.Second, maxGangWait)...)
	return errs.ToAggregate()
}

// validateDrain reports what is wrong with how much is kept for gangs, and for whose.
func validateDrain(args *GangPlacementArgs) field.ErrorList {
	errs := zeroOrWithin(field.NewPath("drainFor"), args.DrainFor, minDrainFor, maxDrainFor)
	errs = append(errs, within(field.NewPath("drainShare"), args.DrainShare, 1, 100)...)
	errs = append(errs, within(field.NewPath("drainTotalShare"), args.DrainTotalShare, 1, 100)...)
	if len(errs) == 0 && *args.DrainTotalShare < *args.DrainShare {
		errs = append(errs, field.Invalid(field.NewPath("drainTotalShare"), *args.DrainTotalShare, "must be at least drainShare"))
	}
	for _, list := range []struct {
		name       string
		namespaces []string
	}{{"drainNamespaces", args.DrainNamespaces}, {"drainExcludedNamespaces", args.DrainExcludedNamespaces}} {
		path := field.NewPath(list.name)
		for i, namespace := range list.namespaces {
			if slices.Contains(list.namespaces[:i], namespace) {
				errs = append(errs, field.Duplicate(path.Index(i), namespace))
			}
			for _, msg := range utilvalidation.IsDNS1123Label(namespace) {
				errs = append(errs, field.Invalid(path.Index(i), namespace, msg))
			}
		}
	}
	for i, namespace := range args.DrainExcludedNamespaces {
		if slices.Contains(args.DrainNamespaces, namespace) {
			errs = append(errs, field.Invalid(field.NewPath("drainExcludedNamespaces").Index(i), namespace, "is in drainNamespaces, too"))
		}
	}
	return errs
}

func validateCommon(args *CommonArgs) field.ErrorList {
	errs := oneOf(field.NewPath("annotationWrite"), args.AnnotationWrite, AnnotationWritePreBind, AnnotationWriteBinding)
	errs = append(errs, validateResources(args.Resources)...)
	errs = append(errs, validateResidualWeights(args.ResidualWeights)...)
	if args.WriteAliases == nil {
		errs = append(errs, field.Required(field.NewPath("writeAliases"), ""))
	}
	for _, msg := range utilvalidation.IsDNS1123Label(args.Namespace) {
		errs = append(errs, field.Invalid(field.NewPath("namespace"), args.Namespace, msg))
	}
	if args.RequestTimeout.Duration <= 0 {
		errs = append(errs, field.Invalid(field.NewPath("requestTimeout"), args.RequestTimeout.String(), "must be greater than 0"))
	}
	if d := args.GraphFreshness.Duration; d != 0 && d < minGraphFreshness {
		errs = append(errs, field.Invalid(field.NewPath("graphFreshness"), args.GraphFreshness.String(),
			fmt.Sprintf("must be 0 or at least %v, two renewals of the exporter's Lease", minGraphFreshness)))
	}
	errs = append(errs, validateDebug(args)...)
	return append(errs, validateLease(args.LeaderLease)...)
}

// validateLabels reports keys that no label has.
func validateLabels(path *field.Path, keys []string) (errs field.ErrorList) {
	for i, key := range keys {
		for _, msg := range utilvalidation.IsQualifiedName(key) {
			errs = append(errs, field.Invalid(path.Index(i), key, msg))
		}
	}
	return errs
}

func validateDebug(args *CommonArgs) field.ErrorList {
	var errs field.ErrorList
	if address := args.DebugAddress; address != "" {
		_, port, err := net.SplitHostPort(address)
		if n, bad := strconv.ParseUint(port, 10, 16); err == nil && (bad != nil || n == 0) {
			err = errors.New("the port must be a number from 1 to 65535")
		}
		if err != nil {
			errs = append(errs, field.Invalid(field.NewPath("debugAddress"), address, "must be host:port: "+err.Error()))
		}
	}
	switch {
	case (args.DebugCertFile == "") != (args.DebugKeyFile == ""):
		errs = append(errs, field.Invalid(field.NewPath("debugCertFile"), args.DebugCertFile, "debugCertFile and debugKeyFile go together"))
	case args.DebugCertFile != "" && args.DebugAddress == "":
		errs = append(errs, field.Invalid(field.NewPath("debugCertFile"), args.DebugCertFile, "has no effect without debugAddress"))
	}
	return errs
}

func validateLease(lease LeaderLease) field.ErrorList {
	var errs field.ErrorList
	path := field.NewPath("leaderLease")
	if lease.Name != "" {
		for _, msg := range utilvalidation.IsDNS1123Subdomain(lease.Name) {
			errs = append(errs, field.Invalid(path.Child("name"), lease.Name, msg))
		}
	}
	if lease.DurationSeconds <= 0 {
		errs = append(errs, field.Invalid(path.Child("durationSeconds"), lease.DurationSeconds, "must be greater than 0"))
	}
	return errs
}

// maxResources is what the plugins can choose devices for at once (podrequest.MaxResources).
const maxResources = 8

func validateResources(resources []string) field.ErrorList {
	path := field.NewPath("resources")
	if len(resources) == 0 {
		return field.ErrorList{field.Required(path, "")}
	}
	var errs field.ErrorList
	if len(resources) > maxResources {
		errs = append(errs, field.TooMany(path, len(resources), maxResources))
	}
	for i, name := range resources {
		switch {
		case !strings.Contains(name, "/"):
			errs = append(errs, field.Invalid(path.Index(i), name, "must be an extended resource: domain/name"))
		case slices.Contains(resources[:i], name):
			errs = append(errs, field.Duplicate(path.Index(i), name))
		}
		for _, msg := range utilvalidation.IsQualifiedName(name) {
			errs = append(errs, field.Invalid(path.Index(i), name, msg))
		}
	}
	return errs
}

func validateResidualWeights(weights map[int]float64) field.ErrorList {
	var errs field.ErrorList
	path := field.NewPath("residualWeights")
	maxGroup := len(nvtopo.Weights{}.Group) - 1
	for g, w := range weights {
		switch {
		case g < minGroup || g > maxGroup:
			errs = append(errs, field.Invalid(path, g, "group sizes are 2 to 8"))
		case !(w >= 0 && w <= maxResidualWeight): // in this form it also refuses NaN
			errs = append(errs, field.Invalid(path, w, "must be between 0 and 10"))
		}
	}
	return errs
}

func validatePolicies(args *TopologyAwareArgs) field.ErrorList {
	var errs field.ErrorList
	supported := map[nvtopo.Policy]bool{}
	path := field.NewPath("supportedPolicies")
	for i, name := range args.SupportedPolicies {
		policy, err := nvtopo.ParsePolicy(name)
		switch {
		case err != nil:
			errs = append(errs, field.Invalid(path.Index(i), name, err.Error()))
		case supported[policy]:
			errs = append(errs, field.Duplicate(path.Index(i), name))
		default:
			supported[policy] = true
		}
	}
	path = field.NewPath("defaultPolicy")
	switch policy, err := nvtopo.ParsePolicy(args.DefaultPolicy); {
	case err != nil:
		errs = append(errs, field.Invalid(path, args.DefaultPolicy, err.Error()))
	case !supported[policy]:
		errs = append(errs, field.Invalid(path, args.DefaultPolicy, "must be one of supportedPolicies"))
	}
	return errs
}

func validateScoreWeights(args *TopologyAwareArgs) field.ErrorList {
	bandwidth, latency, fragmentation := args.BandwidthWeight, args.LatencyWeight, args.FragmentationWeight
	errs := within(field.NewPath("bandwidthWeight"), bandwidth, 0, 1)
	errs = append(errs, within(field.NewPath("latencyWeight"), latency, 0, 1)...)
	errs = append(errs, within(field.NewPath("fragmentationWeight"), fragmentation, 0, 1)...)
	if len(errs) == 0 && *bandwidth+*latency+*fragmentation == 0 {
		errs = append(errs, field.Invalid(field.NewPath("bandwidthWeight"), *bandwidth,
			"bandwidthWeight, latencyWeight and fragmentationWeight must not all be 0"))
	}
	return errs
}

func oneOf[T ~string](path *field.Path, value T, allowed ...T) field.ErrorList {
	if slices.Contains(allowed, value) {
		return nil
	}
	return field.ErrorList{field.NotSupported(path, value, allowed)}
}

func within[T int32 | int64 | float64](path *field.Path, value *T, low, high T) field.ErrorList {
	switch {
	case value == nil:
		return field.ErrorList{field.Required(path, "")}
	case *value >= low && *value <= high: // false for NaN
		return nil
	}
	return field.ErrorList{field.Invalid(path, *value, fmt.Sprintf("must be between %v and %v", low, high))}
}

func zeroOrWithin(path *field.Path, value *metav1.Duration, low, high time.Duration) field.ErrorList {
	if value == nil {
		return field.ErrorList{field.Required(path, "")}
	}
	if d := value.Duration; d == 0 || d >= low && d <= high {
		return nil
	}
	return field.ErrorList{field.Invalid(path, value.Duration.String(), fmt.Sprintf("must be 0, or between %v and %v", low, high))}
}
