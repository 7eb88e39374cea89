-- Argo CD: how a StreamJob does.
--
-- Put it into the ConfigMap argocd-cm under resource.customizations.health.fencepost.dev_StreamJob; docs/gitops.md has the command.

local function answer(status, message)
  return { status = status, message = message }
end

if obj.metadata.deletionTimestamp ~= nil then
  return answer("Progressing", "the job is deleted")
end

if obj.status == nil or obj.status.observedGeneration ~= obj.metadata.generation then
  return answer("Progressing", "the operator has not looked at the newest spec yet")
end

local conditions = {}
for _, condition in ipairs(obj.status.conditions or {}) do
  conditions[condition.type] = condition
end

local function holds(name)
  return conditions[name] ~= nil and conditions[name].status == "True"
end

if holds("Reconciling") then
  local reconciling = conditions["Reconciling"]
  -- Nothing happens until somebody agrees.
  local status = reconciling.reason == "ApprovalNeeded" and "Suspended" or "Progressing"
  return answer(status, reconciling.message)
end

if holds("Stalled") then
  return answer("Degraded", conditions["Stalled"].message)
end

if holds("Ready") then
  local ready = conditions["Ready"]
  return answer(ready.reason == "Suspended" and "Suspended" or "Healthy", ready.message)
end

local ready = conditions["Ready"]
return answer("Progressing", ready ~= nil and ready.message or "the operator has said nothing yet")
