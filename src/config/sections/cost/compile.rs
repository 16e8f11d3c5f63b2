//! Compiles costs, and reads the tables of prices.

use std::sync::Arc;

use super::{Pointers, StatedCost};
use crate::config::sections::prelude::*;
use crate::config::sections::value_match::FileLists;
use crate::http::json_pointer::JsonPointer;
use crate::proxy::answers::limit_headers::QuotaUnit;
use crate::rules::{
    self, CostSource, CountedResponses, Meter, Price, PriceList, Pricing, SettlementRule, UsageRule,
};

/// The largest table of prices, in bytes.
const MAX_PRICES: u64 = 4 << 20;

impl Compiler<'_> {
    /// Reads the tables of prices.
    pub(crate) fn read_prices(&mut self, config: &Config, lists: &mut FileLists) {
        let limits = config.all_limits().filter_map(|limit| limit.in_place());
        let policies = config.policies.values().map(|policy| &policy.value);
        for policy in policies.chain(limits) {
            let Cost::Stated(stated) = &policy.cost.value else {
                continue;
            };
            let Some(file) = &stated.prices else { continue };
            if !lists.prices.contains_key(file.as_path()) {
                let list = self
                    .price_list(file)
                    .unwrap_or_else(|| PriceList::uniform(Price::OF_TOKENS));
                let path = file.as_path().to_owned();
                lists.prices.insert(path, Arc::new(list));
            }
        }
    }

    fn price_list(&mut self, file: &Located<FilePath>) -> Option<PriceList> {
        let (path, table) = self.read(file, MAX_PRICES)?;
        let list = PriceList::parse(&table);
        let wrong = |error| invalid(file.node, format!("{}: {error}", path.display()));
        let help =
            "write dollars per million tokens in CSV: `model,input,output`, then `gpt-5,1.25,10`";
        self.found(list.map_err(|error| wrong(error).help(help)))
    }
}

/// The prices of tokens, if they have any. `part` compiles a part of requests.
pub(crate) fn pricing(
    cost: &Cost,
    lists: &FileLists,
    part: impl Fn(&KeyPart) -> rules::KeyPart,
) -> Option<Arc<Pricing>> {
    let Cost::Stated(stated) = cost else {
        return None;
    };
    let list = lists.prices.get(stated.prices.as_ref()?.as_path())?;
    Some(Arc::new(Pricing {
        list: Arc::clone(list),
        model: stated.model.as_ref().map(|model| part(model)),
    }))
}

/// The charge at admission.
pub(crate) fn cost(
    written: &Cost,
    pricing: Option<&Arc<Pricing>>,
    part: impl Fn(&KeyPart) -> rules::KeyPart,
) -> rules::Cost {
    let stated = match written {
        Cost::Constant(cost) => return rules::Cost::Constant(cost.get()),
        Cost::Stated(stated) => stated,
    };
    let header = stated.header.as_ref();
    let header = header.map(|name| rules::KeyPart::Header(name.get().clone()));
    let body = stated.body.as_ref();
    let body = body.map(|pointer| rules::KeyPart::Body(Arc::clone(pointer.get())));
    if let Some(part) = header.or(body) {
        return rules::Cost::Stated {
            from: vec![part],
            default: stated.default.as_ref().map_or(1, |units| units.get()),
            max: stated.most(),
        };
    }
    let reserve = match stated.reserve.as_deref() {
        Some(Reserve::Stated(reserve)) => Some(reserve),
        _ => None,
    };
    let own = reserve.and_then(|reserve| reserve.max.as_ref());
    let own = own.map(|max| max.get());
    if let Some(header) = reserve.and_then(|reserve| reserve.header.as_ref()) {
        return rules::Cost::Stated {
            from: vec![rules::KeyPart::Header(header.get().clone())],
            default: stated.reserved(),
            max: own.unwrap_or(stated.most()),
        };
    }
    if reserve.is_none() && pricing.is_none() {
        return rules::Cost::Constant(stated.reserved());
    }
    let from = reserve.iter().flat_map(|reserve| reserve.from.iter());
    rules::Cost::Tokens(Box::new(rules::Reserve {
        from: from.map(|one| part(one)).collect(),
        default: stated.reserved(),
        most: own.unwrap_or(u32::MAX),
        estimates_prompt: reserve.is_some_and(|reserve| reserve.prompt.is_some()),
        pricing: pricing.cloned(),
        max: stated.most(),
    }))
}

/// The settlement by responses, if any.
pub(crate) fn settlement(policy: &Policy, pricing: Option<Arc<Pricing>>) -> Option<SettlementRule> {
    let (by, max, unreserved) = match &policy.cost.value {
        Cost::Constant(cost) => {
            let unreserved = (!policy.count_reserve.get()).then(|| cost.get());
            (CostSource::Reserve, u32::MAX, unreserved)
        }
        Cost::Stated(stated) => {
            let pricing = pricing.or_else(|| of_unit(policy.unit.value));
            (settled_by(stated, pricing), stated.most(), None)
        }
    };
    let statuses = policy.count.iter().flat_map(|statuses| statuses.range());
    let statuses: Vec<_> = statuses.collect();
    let counted = (!statuses.is_empty()).then(|| CountedResponses {
        statuses,
        own: policy.count_own.get(),
    });
    let settles = counted.is_some() || by != CostSource::Reserve;
    settles.then_some(SettlementRule {
        counted,
        by,
        max,
        unreserved,
    })
}

/// The prices by which only the tokens of a unit count.
fn of_unit(unit: QuotaUnit) -> Option<Arc<Pricing>> {
    let price = match unit {
        QuotaUnit::InputTokens => Price::OF_INPUT,
        QuotaUnit::OutputTokens => Price::OF_OUTPUT,
        QuotaUnit::Requests | QuotaUnit::Tokens | QuotaUnit::Usd => return None,
    };
    let (list, model) = (Arc::new(PriceList::uniform(price)), None);
    Some(Arc::new(Pricing { list, model }))
}

fn settled_by(stated: &StatedCost, pricing: Option<Arc<Pricing>>) -> CostSource {
    if let Some(name) = &stated.response_header {
        CostSource::Header(name.get().clone())
    } else if let Some(name) = &stated.response_trailer {
        CostSource::Trailer(name.get().clone())
    } else if let Some(Pointers(places)) = stated.response_json.as_deref() {
        let pointers = places
            .iter()
            .map(|place| JsonPointer::clone(place.pointer().get()));
        CostSource::Json(Arc::new(UsageRule {
            pointers: pointers.collect(),
            meter: Meter::Weights(places.iter().map(|place| place.weight()).collect()),
            includes_usage: false,
        }))
    } else if let Some(api) = &stated.settle {
        CostSource::Json(Arc::new(UsageRule {
            pointers: api.pointers(),
            meter: Meter::Tokens(api.value, pricing),
            includes_usage: stated.include_usage.get(),
        }))
    } else if let Some(unit) = &stated.response_bytes {
        CostSource::Bytes(unit.get())
    } else {
        CostSource::Reserve
    }
}
