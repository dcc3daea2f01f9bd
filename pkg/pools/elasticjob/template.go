// SPDX-License-Identifier: Apache-2.0

package elasticjob

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	kjson "sigs.k8s.io/json"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/gangrequest"
)

// templatePath is where the template is, in messages.
const templatePath = "spec.template"

// maxFaults bounds how many faults of a template are named.
const maxFaults = 5

// decode reads an ElasticJob as the API server keeps it. It does not trust the template, of which
// the API server knows only that it is an object: faults say what in it is not of a pod, by
// field. Such an object would fail a typed cache, and with it everybody's jobs.
func decode(u *unstructured.Unstructured) (ej *v1alpha1.ElasticJob, faults []string, err error) {
	object := maps.Clone(u.Object)
	spec, _ := object["spec"].(map[string]any)
	template := spec["template"]
	spec = maps.Clone(spec)
	delete(spec, "template")
	object["spec"] = spec
	ej = &v1alpha1.ElasticJob{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object, ej); err != nil {
		return nil, nil, fmt.Errorf("read ElasticJob %s/%s: %w", u.GetNamespace(), u.GetName(), err)
	}
	faults, err = decodeTemplate(template, &ej.Spec.Template)
	if err != nil {
		return nil, nil, fmt.Errorf("read ElasticJob %s/%s: %w", u.GetNamespace(), u.GetName(), err)
	}
	return ej, faults, nil
}

func decodeTemplate(template any, into *v1.PodTemplateSpec) (faults []string, err error) {
	data, err := json.Marshal(template)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", templatePath, err)
	}
	strict, err := kjson.UnmarshalStrict(data, into)
	if err != nil {
		*into = v1.PodTemplateSpec{}
		strict = append(strict, err)
	}
	for _, err := range strict {
		faults = append(faults, templatePath+": "+err.Error())
	}
	return faults, nil
}

// complete checks what of a template is this controller's business, and fills in what the job
// says of it: the devices, and that a pod that ended is not started again. What else pods need
// the API server knows.
func complete(ej *v1alpha1.ElasticJob, resources []string) (faults []string) {
	t := &ej.Spec.Template
	if len(t.Spec.Containers) == 0 {
		return []string{templatePath + ".spec.containers: there are none"}
	}
	switch t.Spec.RestartPolicy {
	case "":
		t.Spec.RestartPolicy = v1.RestartPolicyNever
	case v1.RestartPolicyAlways:
		faults = append(faults, templatePath+".spec.restartPolicy: Always: want Never or OnFailure")
	case v1.RestartPolicyNever, v1.RestartPolicyOnFailure:
	}
	pod := &v1.Pod{ObjectMeta: t.ObjectMeta}
	if key, ok := gangrequest.KeyOf(pod); ok {
		faults = append(faults, fmt.Sprintf("%s.metadata: it makes the pods members of %s; the job's own gang places them", templatePath, strings.TrimSpace(key.String())))
	}
	return append(faults, completeDevices(&t.Spec, int64(ej.Spec.Scaling.GPUPerReplica), resources)...)
}

// completeDevices has the pod ask for the devices of one replica: those of the template must be
// as many, and where it names none the first container has them.
func completeDevices(spec *v1.PodSpec, want int64, resources []string) (faults []string) {
	have, kinds := int64(0), map[v1.ResourceName]bool{}
	for i := range spec.Containers {
		n, more := devices(fmt.Sprintf("%s.spec.containers[%d]", templatePath, i), &spec.Containers[i].Resources, resources, kinds)
		have += n
		faults = append(faults, more...)
	}
	for i := range spec.InitContainers {
		path := fmt.Sprintf("%s.spec.initContainers[%d]", templatePath, i)
		n, more := devices(path, &spec.InitContainers[i].Resources, resources, kinds)
		faults = append(faults, more...)
		if n > want {
			faults = append(faults, fmt.Sprintf("%s.resources.limits: %d devices, more than spec.scaling.gpuPerReplica: %d", path, n, want))
		}
	}
	switch {
	case len(faults) > 0:
	case len(kinds) > 1:
		faults = append(faults, fmt.Sprintf("%s.spec: devices of %d resources: want one of them", templatePath, len(kinds)))
	case have == 0 && len(kinds) > 0:
		faults = append(faults, templatePath+".spec.containers: none of them has a device, but an init container does")
	case have == 0 && len(resources) > 0:
		first := &spec.Containers[0].Resources
		if first.Limits == nil {
			first.Limits = v1.ResourceList{}
		}
		first.Limits[v1.ResourceName(resources[0])] = *resource.NewQuantity(want, resource.DecimalSI)
	case have != want:
		faults = append(faults, fmt.Sprintf("%s.spec.containers: resources.limits of %d devices, and spec.scaling.gpuPerReplica is %d", templatePath, have, want))
	}
	return faults
}

// devices counts what a container asks for of the pool's resources.
func devices(path string, r *v1.ResourceRequirements, resources []string, kinds map[v1.ResourceName]bool) (n int64, faults []string) {
	for _, name := range resources {
		limit, limited := r.Limits[v1.ResourceName(name)]
		request, requested := r.Requests[v1.ResourceName(name)]
		switch {
		case requested && (!limited || request.Cmp(limit) != 0):
			faults = append(faults, fmt.Sprintf("%s.resources.requests[%s]: want the same in resources.limits", path, name))
		case limited && (limit.Sign() < 0 || limit.MilliValue()%1000 != 0):
			faults = append(faults, fmt.Sprintf("%s.resources.limits[%s]: %s: want a whole number", path, name, limit.String()))
		case limited && !limit.IsZero():
			n += limit.Value()
			kinds[v1.ResourceName(name)] = true
		}
	}
	return n, faults
}

// resourcesOf are the extended resources that a pool counts, by poolType where it names none.
func resourcesOf(pool *v1alpha1.ComputePool) []string {
	if len(pool.Spec.Resources) > 0 {
		return pool.Spec.Resources
	}
	gpus, npus := []string{"nvidia.com/gpu", "amd.com/gpu"}, []string{"huawei.com/Ascend910B", "habana.ai/gaudi"}
	switch pool.Spec.PoolType {
	case v1alpha1.PoolNPU:
		return npus
	case v1alpha1.PoolMixed:
		return slices.Concat(gpus, npus)
	case v1alpha1.PoolGPU:
	}
	return gpus
}

// faultMessage is what a condition says of faults.
func faultMessage(faults []string) string {
	more := len(faults) - maxFaults
	if more <= 0 {
		return strings.Join(faults, "; ")
	}
	return fmt.Sprintf("%s; and %d more", strings.Join(faults[:maxFaults], "; "), more)
}
