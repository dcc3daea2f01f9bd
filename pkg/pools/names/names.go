// SPDX-License-Identifier: Apache-2.0

package names

import (
	"strconv"
	"strings"
	"time"

	"github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

// FieldOwner is the field owner of the controller's writes.
const FieldOwner = "nvtopo-pool-controller"

// Labels on the objects made for pools and jobs.
const (
	// LabelElasticJob is on the jobs and pods of an ElasticJob; its value is the job's name.
	LabelElasticJob = v1alpha1.GroupName + "/elasticjob"
	// LabelRole is the part of an ElasticJob that a Job or pod is: RoleBase or RoleExtra.
	LabelRole = v1alpha1.GroupName + "/role"
	// LabelSession is on the objects of a RemoteGPUSession; its value is the session's name.
	LabelSession = v1alpha1.GroupName + "/session"
	// LabelQueue is on the ClusterQueues of a queue of the pool; its value is the queue's name.
	LabelQueue = v1alpha1.GroupName + "/queue"
	// LabelManaged is on the objects of Kueue that the controller made; its value is the pool's name.
	LabelManaged = v1alpha1.GroupName + "/managed"
)

// Roles of a Job or pod in an ElasticJob.
const (
	RoleBase  = "base"  // minReplicas, placed as a gang
	RoleExtra = "extra" // one further replica
)

// Finalizers.
const (
	// FinalizerMetering keeps a pod until its end has been recorded.
	FinalizerMetering = v1alpha1.GroupName + "/metering"
	// FinalizerBilling keeps a UsageRecord, or its copy in another namespace, until it has been billed
	// and kept for long enough.
	FinalizerBilling = v1alpha1.GroupName + "/billing"
	// FinalizerPool keeps a ComputePool while jobs hold its quota.
	FinalizerPool = v1alpha1.GroupName + "/pool"
)

// GateProtected is the gate of non-preemptible jobs: the value of Kueue's annotation
// AnnotationAdmissionGatedBy on their Jobs. The pool controller removes it once the pool has pinned the
// quota for the job.
const GateProtected = v1alpha1.GroupName + "/protected"

// AnnotationProtection is on a Job that waits for the removal of GateProtected: one of the reasons
// below, a colon and a sentence on the cause of the wait. The pool controller writes it.
const AnnotationProtection = v1alpha1.GroupName + "/protection"

// AnnotationDeactivated is on a Workload that the pool controller has deactivated, and will activate
// again. A deactivated one without it was stopped by Kueue or by a person, and stays so.
const AnnotationDeactivated = v1alpha1.GroupName + "/deactivated"

// AnnotationCordon marks a node that is cordoned for its devices to be divided; its value is the pool's
// name.
const AnnotationCordon = v1alpha1.GroupName + "/cordoned-for-virtualization"

// AnnotationRecorded is on a UsageRecord: the time at which the controller made it. An object created
// later than that was restored from a backup.
const AnnotationRecorded = v1alpha1.GroupName + "/recorded-at"

// Reasons in AnnotationProtection.
const (
	// ProtectedNever: the job is greater than its share may protect at all.
	ProtectedNever = "ExceedsProtectedLimit"
	// ProtectedAtLimit: the job and the jobs that its share protects already are.
	ProtectedAtLimit = "ProtectedLimitReached"
	// ProtectedTakes: the job would take devices that are guaranteed to others or set aside for them.
	ProtectedTakes = "GuaranteedToOthers"
	// ProtectedSoon: its quota is being set aside.
	ProtectedSoon = "WaitingForProtectedCapacity"
)

// CheckPlacement is the admission check on whether a gang fits, and also the name of its controller.
const CheckPlacement = v1alpha1.GroupName + "/placement"

// CheckPlacementObject is the name of the AdmissionCheck, which cannot have a slash.
const CheckPlacementObject = "nvtopo-placement"

// DefaultQueue is the LocalQueue of a tenant's namespace for pods without GPUs.
const DefaultQueue = "default"

// DefaultClusterQueue is the ClusterQueue behind all default LocalQueues. The names of pools'
// ClusterQueues have a dot.
const DefaultClusterQueue = "nvtopo-default"

// Cohort returns the name of a pool's root Cohort, and of its ResourceFlavor.
func Cohort(pool string) string { return pool }

// ClusterQueue returns the name of the ClusterQueue of a tenant, of a queue of the pool, or of a tenant
// in such a queue. Empty parts are left out. Names of pools, tenants and queues have no dots.
func ClusterQueue(pool, tenant, queue string) string { return join(pool, tenant, queue) }

// LocalQueue returns the name under which the jobs of a namespace use a queue.
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

// Values of WorkloadPriorityClasses. A job's total priority, its own plus its queue's, is within ±2000.
const (
	// ExtraOffset is added for replicas beyond minReplicas, so that they are preempted before all
	// others.
	ExtraOffset = -1_000_000
	// ProtectedPriority is the priority of all non-preemptible jobs. They are equal, so that none of
	// them is evicted for another.
	ProtectedPriority = 1_000_000
)

// ProtectedClass is the WorkloadPriorityClass of non-preemptible jobs.
const ProtectedClass = "nvtopo-protected"

// PriorityClass returns the name of the WorkloadPriorityClass of a job of that priority, and its value.
// Names have no minus sign before a number: n5 is -5.
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

// Protection parses AnnotationProtection of a Job; ok is false if it is missing or the pool controller
// cannot have written it.
func Protection(annotations map[string]string) (reason, message string, ok bool) {
	reason, message, _ = strings.Cut(annotations[AnnotationProtection], ": ")
	switch reason {
	case ProtectedNever, ProtectedAtLimit, ProtectedTakes, ProtectedSoon:
		return reason, message, message != ""
	}
	return "", "", false
}

// BaseJob returns the name of the Job of an ElasticJob's minReplicas.
func BaseJob(elasticJob string) string { return elasticJob + "-base" }

// ExtraJob returns the name of the Job of one replica beyond minReplicas; i is its number, minReplicas
// or more.
func ExtraJob(elasticJob string, i int32) string {
	return elasticJob + "-x" + strconv.FormatInt(int64(i), 10)
}

// restInfix is between the name of a record and the end of the one before it, in seconds since 1970, in
// the name of a record that continues one that ended too early.
const restInfix = "-from-"

// RestRecord returns the name of the record that continues a pod's record which ended too early. name is
// the name of the pod's first record.
func RestRecord(name string, from time.Time) string {
	return name + restInfix + strconv.FormatInt(from.Unix(), 10)
}

// IsRestRecord reports whether a record continues another one.
func IsRestRecord(record string) bool { return strings.Contains(record, restInfix) }

// RecordsOf reports whether a record has the name, or continues the record that has it.
func RecordsOf(name, record string) bool {
	return record == name || strings.HasPrefix(record, name+restInfix)
}

// Model returns the model of a device in the form of records and price books: as nvtopo.ModelLabel does,
// without characters that records do not admit.
func Model(model string) string { return plain(nvtopo.ModelLabel(model)) }

// maxOwner is the length of the longest owner that a record admits.
const maxOwner = 253

// Owner returns the owner of a pod in the form of records: Job/sweep. Tenants choose these names:
// characters that records do not admit are dropped, so that the pod has its record nevertheless.
func Owner(kind, name string) string {
	owner := plain(kind + "/" + name)
	return strings.TrimRight(owner[:min(len(owner), maxOwner)], "-_./:")
}

// plain keeps letters, digits and -_./: of a text, with dashes for blanks, from the first letter or
// digit to the last.
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
