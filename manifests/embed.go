// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"

	"sigs.k8s.io/yaml"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
)

// FS holds every manifest under its path in this folder.
//
//go:embed kustomization.yaml base core crd rbac policy flowcontrol network scheduler exporter node-agent examples components overlays
var FS embed.FS

// Pools holds what pools need beside FS: the definitions of their kinds, and the account,
// roles and admission policies of their controller.
//
//go:embed pools
var Pools embed.FS

// UI holds the web view's Deployment with its account and roles.
//
//go:embed ui
var UI embed.FS

// Alerts holds the alerts of scheduler, exporter and node agent. Those of pools are in Pools.
//
//go:embed alerts
var Alerts embed.FS

// Dashboards holds the Grafana dashboards that tools/dashboards writes.
//
//go:embed dashboards
var Dashboards embed.FS

// Kueue holds Kueue's configuration.
//
//go:embed kueue
var Kueue embed.FS

// KueueConfigPath is its path in Kueue.
const KueueConfigPath = "kueue/component/controller_manager_config.yaml"

// Paths in FS of the scheduler's configurations.
const (
	SchedulerConfigPath        = "scheduler/scheduler-config.yaml"         // annotations by a PATCH
	SchedulerConfigBindingPath = "scheduler/scheduler-config-binding.yaml" // annotations on the Binding
	SchedulerConfigDefaultPath = "scheduler/scheduler-config-default.yaml" // in place of kube-scheduler
)

// CRDs returns the custom resource definitions of the project but those of pools.
func CRDs() ([]*apiextensionsv1.CustomResourceDefinition, error) {
	return decodeFolder[apiextensionsv1.CustomResourceDefinition](FS, "crd", "CustomResourceDefinition")
}

// PoolCRDs returns the custom resource definitions of pools.
func PoolCRDs() ([]*apiextensionsv1.CustomResourceDefinition, error) {
	return decodeFolder[apiextensionsv1.CustomResourceDefinition](Pools, "pools", "CustomResourceDefinition")
}

// Policies returns the admission policies of the project.
func Policies() ([]*admissionregistrationv1.ValidatingAdmissionPolicy, error) {
	return decodeFolder[admissionregistrationv1.ValidatingAdmissionPolicy](FS, "policy", "ValidatingAdmissionPolicy")
}

// PolicyBindings returns the bindings that put the policies of Policies into force.
func PolicyBindings() ([]*admissionregistrationv1.ValidatingAdmissionPolicyBinding, error) {
	return decodeFolder[admissionregistrationv1.ValidatingAdmissionPolicyBinding](FS, "policy", "ValidatingAdmissionPolicyBinding")
}

// PoolPolicies returns the admission policies of pools.
func PoolPolicies() ([]*admissionregistrationv1.ValidatingAdmissionPolicy, error) {
	return decodeFolder[admissionregistrationv1.ValidatingAdmissionPolicy](Pools, "pools", "ValidatingAdmissionPolicy")
}

// PoolPolicyBindings returns the bindings that put the policies of PoolPolicies into force.
func PoolPolicyBindings() ([]*admissionregistrationv1.ValidatingAdmissionPolicyBinding, error) {
	return decodeFolder[admissionregistrationv1.ValidatingAdmissionPolicyBinding](Pools, "pools", "ValidatingAdmissionPolicyBinding")
}

// FlowControl returns the flow schemas of the project's requests, and the priority
// levels that the project adds.
func FlowControl() ([]*flowcontrolv1.FlowSchema, []*flowcontrolv1.PriorityLevelConfiguration, error) {
	schemas, err := decodeFolder[flowcontrolv1.FlowSchema](FS, "flowcontrol", "FlowSchema")
	if err != nil {
		return nil, nil, err
	}
	levels, err := decodeFolder[flowcontrolv1.PriorityLevelConfiguration](FS, "flowcontrol", "PriorityLevelConfiguration")
	return schemas, levels, err
}

// decodeFolder strictly decodes all objects of one kind in a folder.
func decodeFolder[T any](files embed.FS, folder, kind string) ([]*T, error) {
	var out []*T
	err := fs.WalkDir(files, folder, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || path.Ext(name) != ".yaml" {
			return err
		}
		data, err := files.ReadFile(name)
		if err != nil {
			return fmt.Errorf("read: %w", err)
		}
		objects, err := decode[T](data, kind)
		if err != nil {
			return fmt.Errorf("decode %s: %w", name, err)
		}
		out = append(out, objects...)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read the manifests: %w", err)
	}
	return out, nil
}

func decode[T any](data []byte, kind string) ([]*T, error) {
	var out []*T
	docs := utilyaml.NewDocumentDecoder(io.NopCloser(bytes.NewReader(data)))
	buf := make([]byte, len(data)+1)
	for {
		n, err := docs.Read(buf)
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return nil, fmt.Errorf("split documents: %w", err)
		}
		var meta metav1.TypeMeta
		if err := yaml.Unmarshal(buf[:n], &meta); err != nil {
			return nil, fmt.Errorf("read the kind: %w", err)
		}
		if meta.Kind != kind {
			continue
		}
		object := new(T)
		if err := yaml.UnmarshalStrict(buf[:n], object); err != nil {
			return nil, fmt.Errorf("%s: %w", kind, err)
		}
		out = append(out, object)
	}
}
