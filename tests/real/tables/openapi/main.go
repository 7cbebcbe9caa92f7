// Prints the merge schema that the API server makes of its OpenAPI definitions.
package main

import (
	"os"

	yamlv2 "go.yaml.in/yaml/v2"
	"k8s.io/kube-openapi/pkg/schemaconv"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"k8s.io/kubernetes/pkg/generated/openapi"
	"sigs.k8s.io/yaml"
)

func main() {
	definitions := openapi.GetOpenAPIDefinitions(func(path string) spec.Ref {
		return spec.MustCreateRef("#/components/schemas/" + path)
	})
	models := map[string]*spec.Schema{}
	for name, definition := range definitions {
		models[name] = &definition.Schema
	}
	schema, err := schemaconv.ToSchemaFromOpenAPI(models, false)
	if err != nil {
		panic(err)
	}
	text, err := yamlv2.Marshal(schema)
	if err != nil {
		panic(err)
	}
	json, err := yaml.YAMLToJSON(text)
	if err != nil {
		panic(err)
	}
	if _, err := os.Stdout.Write(append(json, '\n')); err != nil {
		panic(err)
	}
}
