// SPDX-License-Identifier: Apache-2.0
// Names that problems are about.
#pragma once

#include <array>  // std::array

namespace decode::retrieval {

inline constexpr std::array cities = {"Oslo",   "Lima",   "Kyoto",  "Cairo",  "Paris",  "Delhi",  "Quito",  "Bern",
                                      "Dublin", "Havana", "Lisbon", "Athens", "Riga",   "Tunis",  "Sofia",  "Malta",
                                      "Boston", "Denver", "Austin", "Hanoi",  "Perth",  "Milan",  "Turin",  "Seoul",
                                      "Dakar",  "Accra",  "Baku",   "Minsk",  "Vienna", "Prague", "Madrid", "Rome"};

inline constexpr std::array buildings = {"museum", "harbor",  "library",  "station", "bakery", "school",
                                         "garden", "theater", "hospital", "market",  "bank",   "hotel",
                                         "tower",  "factory", "temple",   "stadium"};

/// A capital, and its country, whose name has no word in common with it.
struct capital {
  const char* city;
  const char* country;
};
inline constexpr std::array<capital, 32> capitals = {
    {{"Oslo", "Norway"},    {"Lima", "Peru"},        {"Cairo", "Egypt"},       {"Paris", "France"},
     {"Delhi", "India"},    {"Quito", "Ecuador"},    {"Bern", "Switzerland"},  {"Dublin", "Ireland"},
     {"Havana", "Cuba"},    {"Lisbon", "Portugal"},  {"Athens", "Greece"},     {"Riga", "Latvia"},
     {"Sofia", "Bulgaria"}, {"Hanoi", "Vietnam"},    {"Seoul", "South Korea"}, {"Dakar", "Senegal"},
     {"Accra", "Ghana"},    {"Baku", "Azerbaijan"},  {"Minsk", "Belarus"},     {"Vienna", "Austria"},
     {"Madrid", "Spain"},   {"Rome", "Italy"},       {"Tokyo", "Japan"},       {"Berlin", "Germany"},
     {"Warsaw", "Poland"},  {"Budapest", "Hungary"}, {"London", "England"},    {"Moscow", "Russia"},
     {"Ottawa", "Canada"},  {"Helsinki", "Finland"}, {"Stockholm", "Sweden"},  {"Nairobi", "Kenya"}}};

}  // namespace decode::retrieval
