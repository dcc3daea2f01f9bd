// SPDX-License-Identifier: Apache-2.0

package names

import (
	"strconv"
	"strings"
	"time"

	"github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

// FieldOwner owns the fields that the controller applies.
const FieldOwner = "nvtopo-pool-controller"

// Labels on what is made of pools and jobs.
const (
	// LabelElasticJob is on the jobs and pods of an ElasticJob; its value is the job's name.
	LabelElasticJob = v1alpha1.GroupName + "/elasticjob"
	// LabelRole says which part of an ElasticJob a Job or pod is: RoleBase or RoleExtra.
	LabelRole = v1alpha1.GroupName + "/role"
	// LabelSession is on what belongs to a RemoteGPUSession; its value is the session's name.
	LabelSession = v1alpha1.GroupName + "/session"
	// LabelQueue is on the ClusterQueues of a queue of the pool; its value is the queue's name.
	LabelQueue = v1alpha1.GroupName + "/queue"
	// LabelManaged is on the objects of Kueue that the controller made; its value is the pool's
	// name.
	LabelManaged = v1alpha1.GroupName + "/managed"
)

// Roles of a Job or pod in an ElasticJob.
const (
	RoleBase  = "base"  // minReplicas, placed as a gang
	RoleExtra = "extra" // one replica more
)

// Finalizers.
const (
	// FinalizerMetering keeps a pod until its end has been recorded.
	FinalizerMetering = v1alpha1.GroupName + "/metering"
	// FinalizerBilling keeps a UsageRecord, or what it says in another namespace, until it has
	// been billed and kept for long enough.
	FinalizerBilling = v1alpha1.GroupName + "/billing"
	// FinalizerPool keeps a ComputePool while jobs hold its quota.
	FinalizerPool = v1alpha1.GroupName + "/pool"
)

// GateProtected is who lets jobs in that must not be preempted: the value of Kueue's annotation
// AnnotationAdmissionGatedBy on their Jobs. The pool controller takes it away once the pool has
// pinned the quota for the job.
const GateProtected = v1alpha1.GroupName + "/protected"

// AnnotationProtection is on a Job that waits for GateProtected to be taken away: one of the reasons
// below, a colon and a sentence that say what it waits for. The pool controller writes it.
const AnnotationProtection = v1alpha1.GroupName + "/protection"

// AnnotationDeactivated is on a Workload that the pool controller has deactivated, and activates
// again. One without it was stopped by Kueue or by a person, and stays so.
const AnnotationDeactivated = v1alpha1.GroupName + "/deactivated"

// AnnotationCordon says that a node is cordoned for its devices to be divided; its value is the pool's
// name.
const AnnotationCordon = v1alpha1.GroupName + "/cordoned-for-virtualization"

// AnnotationRecorded is on a UsageRecord: when the controller made it. An object that is younger than
// that was made of a backup.
const AnnotationRecorded = v1alpha1.GroupName + "/recorded-at"

// Reasons in AnnotationProtection.
const (
	// ProtectedNever: the job is greater than what its share may protect at all.
	ProtectedNever = "ExceedsProtectedLimit"
	// ProtectedAtLimit: it is, with the jobs that its share protects already.
	ProtectedAtLimit = "ProtectedLimitReached"
	// ProtectedTakes: it would take of what others are guaranteed or have set aside.
	ProtectedTakes = "GuaranteedToOthers"
	// ProtectedSoon: its quota is being set aside.
	ProtectedSoon = "WaitingForProtectedCapacity"
)

// CheckPlacement is the admission check that asks whether a gang fits, and also the name of its
// controller.
const CheckPlacement = v1alpha1.GroupName + "/placement"

// CheckPlacementObject is the name of the AdmissionCheck, which cannot have a slash.
const CheckPlacementObject = "nvtopo-placement"

// DefaultQueue is the LocalQueue of a tenant's namespace that pods without GPUs are in.
const DefaultQueue = "default"

// DefaultClusterQueue is the ClusterQueue of all of them. Those of pools have a dot.
const DefaultClusterQueue = "nvtopo-default"

// Cohort is the name of a pool's root Cohort, and of its ResourceFlavor.
func Cohort(pool string) string { return pool }

// ClusterQueue is the queue of a tenant, of a queue of the pool, or of a tenant in such a queue.
// What is empty is left out. Names of pools, tenants and queues have no dots.
func ClusterQueue(pool, tenant, queue string) string { return join(pool, tenant, queue) }

// LocalQueue is the queue as the jobs of a namespace name it.
func LocalQueue(pool, queue string) string { return join(pool, queue) }

func join(parts ...string) string {
	var b strings.Builder
	for _, p := range parts {
		if p == "" {
			continue
		}
		if b.Len() > 0 {
			b.WriteByte('.')
		}
		b.WriteString(p)
	}
	return b.String()
}

// Values of WorkloadPriorityClasses. A job's own priority is within ±2000: that of the job and
// that of its queue.
const (
	// ExtraOffset is added for replicas beyond minReplicas, so that they go before all others.
	ExtraOffset = -1_000_000
	// ProtectedPriority is that of all jobs that must not be preempted. They are equal, so that
	// none of them is evicted for another.
	ProtectedPriority = 1_000_000
)

// ProtectedClass is the WorkloadPriorityClass of jobs that must not be preempted.
const ProtectedClass = "nvtopo-protected"

// PriorityClass is the WorkloadPriorityClass of a job of that priority, and its value. Names have
// no minus sign before a number: n5 is -5.
func PriorityClass(priority int32, role string) (name string, value int32) {
	sign := "p"
	if priority < 0 {
		sign = "n"
	}
	number := strings.TrimPrefix(strconv.FormatInt(int64(priority), 10), "-")
	if role == RoleExtra {
		return "nvtopo-extra-" + sign + number, ExtraOffset + priority
	}
	return "nvtopo-" + sign + number, priority
}

// Protection is what AnnotationProtection says on a Job; ok is false if there is nothing that the pool
// controller would have written.
func Protection(annotations map[string]string) (reason, message string, ok bool) {
	reason, message, _ = strings.Cut(annotations[AnnotationProtection], ": ")
	switch reason {
	case ProtectedNever, ProtectedAtLimit, ProtectedTakes, ProtectedSoon:
		return reason, message, message != ""
	}
	return "", "", false
}

// BaseJob is the Job of an ElasticJob's minReplicas.
func BaseJob(elasticJob string) string { return elasticJob + "-base" }

// ExtraJob is the Job of one replica beyond them; i is its number, minReplicas or more.
func ExtraJob(elasticJob string, i int32) string {
	return elasticJob + "-x" + strconv.FormatInt(int64(i), 10)
}

// restInfix is between the name of a record and the end of the one before it, in seconds since 1970, in
// the name of a record that goes on where another one ended too early.
const restInfix = "-from-"

// RestRecord is the record that goes on where one of a pod ended too early. name is that of the pod's
// first record.
func RestRecord(name string, from time.Time) string {
	return name + restInfix + strconv.FormatInt(from.Unix(), 10)
}

// IsRestRecord says whether a record goes on where another one ended.
func IsRestRecord(record string) bool { return strings.Contains(record, restInfix) }

// RecordsOf says whether a record is the one of the name, or goes on where it ended.
func RecordsOf(name, record string) bool {
	return record == name || strings.HasPrefix(record, name+restInfix)
}

// Model writes the model of a device as records and price books have it: as nvtopo.ModelLabel does, without
// what no record takes.
func Model(model string) string { return plain(nvtopo.ModelLabel(model)) }

// maxOwner is the length of the longest owner that a record takes.
const maxOwner = 253

// Owner writes the owner of a pod as records have it: Job/sweep. A tenant writes owners as it likes: what
// no record takes of one is left out, so that the pod has its record all the same.
func Owner(kind, name string) string {
	owner := plain(kind + "/" + name)
	return strings.TrimRight(owner[:min(len(owner), maxOwner)], "-_./:")
}

// plain leaves letters, digits and -_./: of a text, with dashes for blanks, from the first letter or digit
// to the last.
func plain(s string) string {
	return strings.Trim(strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', strings.ContainsRune("-_./:", r):
			return r
		case r == ' ':
			return '-'
		}
		return -1
	}, s), "-_./:")
}
