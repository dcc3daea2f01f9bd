// SPDX-License-Identifier: Apache-2.0

package elasticjob

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"strings"

	kjson "sigs.k8s.io/json"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/placement/gangrequest"
	"github.com/nvtopo/nvtopo/pkg/pools/virtualization"
)

// templatePath is the template's field path in messages.
const templatePath = "spec.template"

// maxFaults is the most faults of a template that a message names.
const maxFaults = 5

// decode reads an ElasticJob as the API server keeps it. It does not trust the template, of which the
// API server knows only that it is an object: faults name the fields that no pod template has. Such an
// object would fail a typed cache, and with it the jobs of all tenants.
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

// complete checks the template fields that concern this controller, and fills in the job's own settings:
// the devices, and a restart policy that does not start ended pods again. Other fields are checked by
// the API server.
func complete(ej *v1alpha1.ElasticJob, pool *v1alpha1.ComputePool) (faults []string) {
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
	faults = append(faults, reserved(t)...)
	pod := &v1.Pod{ObjectMeta: t.ObjectMeta}
	if key, ok := gangrequest.KeyOf(pod); ok {
		faults = append(faults, fmt.Sprintf("%s.metadata: it makes the pods members of %s; the job's own gang places them", templatePath, strings.TrimSpace(key.String())))
	}
	most := cmp.Or(pool.Spec.MaxTerminationGracePeriodSeconds, v1alpha1.DefaultMaxTerminationGracePeriodSeconds)
	if grace := t.Spec.TerminationGracePeriodSeconds; grace != nil && *grace > most {
		faults = append(faults, fmt.Sprintf("%s.spec.terminationGracePeriodSeconds: %d: at most %d in ComputePool %s, by its maxTerminationGracePeriodSeconds",
			templatePath, *grace, most, pool.Name))
	}
	if why := virtualization.Refusal(pool, ej); why != "" {
		return append(faults, "spec."+why)
	}
	return append(faults, completeDevices(&t.Spec, int64(ej.Spec.Scaling.GPUPerReplica), offerOf(pool))...)
}

// faultMessage joins the first maxFaults faults, and counts the rest.
func faultMessage(faults []string) string {
	more := len(faults) - maxFaults
	if more <= 0 {
		return strings.Join(faults, "; ")
	}
	return fmt.Sprintf("%s; and %d more", strings.Join(faults[:maxFaults], "; "), more)
}
